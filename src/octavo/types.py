"""The nouns that the packages share: how to sample, what comes back, what a chat holds.

Plain values: no arrays, no threads, no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from octavo.errors import RequestError
from octavo.record import dataclass

FinishReason = Literal["stop", "length", "cancelled", "error"]
GrammarKind = Literal["json_schema", "regex", "lark"]
ToolMode = Literal["auto", "required", "none"]


@dataclass(frozen=True)
class Trigger:
    """When a grammar begins to hold; until then the output is free.

    `text`: behind the first time that the answer, not the thinking, says it; "": as soon as the
    thinking is over. `only_first`: only as the beginning of the answer, blanks aside.
    `reasoning_tags` and `in_reasoning` are as in `text.split.Splitter`.
    """

    text: str
    only_first: bool = False
    reasoning_tags: tuple[str, str] | None = None
    in_reasoning: bool = False


@dataclass(frozen=True)
class GrammarSpec:
    """What the output must match: a JSON schema (as JSON text), a regex or a Lark grammar.

    `calm`: while it holds the temperature falls: 0 where few tokens may come, half elsewhere.
    """

    kind: GrammarKind
    text: str
    trigger: Trigger | None = None  # None: from the first token on
    calm: bool = False


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next tokens. Names and defaults are llama.cpp's where it has them.

    Raises:
        RequestError: a value is outside its range; the message names the range.
    """

    max_tokens: int = -1  # most tokens to generate; -1: until the context is full
    temperature: float = 0.8  # 0: always the likeliest token
    top_k: int = 40  # keep the k likeliest; 0: all
    top_p: float = 0.95  # keep the likeliest that together reach p; 1: all
    min_p: float = 0.05  # keep those at least p times as likely as the likeliest; 0: all
    typical_p: float = 1.0  # keep the most typical that together reach p; 1: all
    repeat_penalty: float = 1.0  # divides positive and multiplies negative logits; 1: off
    repeat_last_n: int = 64  # tokens that the three penalties look back; -1: all, 0: off
    frequency_penalty: float = 0.0  # taken off a logit for each time the token occurred
    presence_penalty: float = 0.0  # taken off once if it occurred
    dry_multiplier: float = 0.0  # DRY: strength; 0: off
    dry_base: float = 1.75  # DRY: growth for each repeated token beyond the allowed length
    dry_allowed_length: int = 2  # DRY: repeats up to this length are free
    dry_last_n: int = -1  # DRY: tokens looked back; -1: all, 0: off
    dry_breakers: frozenset[int] = frozenset()  # DRY: ids that a repeat never spans
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # id -> added; -inf forbids
    seed: int | None = None  # same seed, same output; None: a fresh one
    n_logprobs: int | None = None  # alternatives reported with each token; None: no log-probs
    stop_ids: frozenset[int] = frozenset()  # end on these too, besides the model's own
    ignore_eos: bool = False  # never choose the model's own stop tokens
    grammar: GrammarSpec | None = None
    prompt_logprobs: bool = False  # of the prompt's tokens too; nothing of it is reused then
    report_progress: bool = False  # `PromptProgress` comes before the first token

    def __post_init__(self) -> None:
        for name, low, high in RANGES:
            _check(name, getattr(self, name), low, high)
        for token, bias in self.logit_bias.items():
            if token < 0 or math.isnan(bias) or bias == math.inf:
                raise RequestError(
                    f"logit_bias {token}: {bias} is not allowed",
                    "Ids are 0 or more; a bias is a number, or -inf to forbid the token.",
                )


_MANY = 2**31 - 1
# Whole bounds: only whole numbers are allowed.
RANGES: tuple[tuple[str, float, float], ...] = (
    ("max_tokens", -1, _MANY),
    ("top_k", 0, _MANY),
    ("repeat_last_n", -1, _MANY),
    ("dry_allowed_length", 1, _MANY),
    ("dry_last_n", -1, _MANY),
    ("seed", 0, 2**64 - 1),
    ("n_logprobs", 0, 100),
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("typical_p", 0.0, 1.0),
    ("repeat_penalty", 0.01, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("presence_penalty", -100.0, 100.0),
    ("dry_multiplier", 0.0, 100.0),
    ("dry_base", 1.0, 100.0),
)


def _check(name: str, value: Any, low: float, high: float) -> None:
    if value is None and name in ("seed", "n_logprobs"):
        return
    whole = isinstance(low, int)
    right_type = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right_type or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise RequestError(f"{name} is {value!r}", f"{name} is {kind} from {low} to {high}.")


@dataclass(frozen=True)
class TopLogprob:
    """One alternative: natural log of its probability before any sampling rule."""

    id: int
    logprob: float


@dataclass(frozen=True)
class Token:
    """One generated token. Log-probabilities are there if `n_logprobs` asked for them."""

    id: int
    logprob: float | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True)
class PromptProgress:
    """How far a prompt is computed: `processed` of `total` tokens, `cached` of them from before."""

    total: int
    cached: int
    processed: int
    seconds: float  # since its first step


@dataclass(frozen=True)
class Usage:
    """What one request took."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt: found in the cache, not computed again
    completion_tokens: int = 0
    queue_seconds: float = 0.0  # from submit until its first step
    prompt_seconds: float = 0.0  # from its first step until the prompt is in the cache
    generation_seconds: float = 0.0  # from the first token to the last
    first_token_seconds: float = 0.0  # from submit to the first token
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    reuse_cause: str = ""  # why no more was found in the cache, as `kv.prefix.Cause`
    reuse_reason: str = ""  # the same with numbers, for people


@dataclass(frozen=True)
class ToolCall:
    """A function that the model wants called; `arguments` is JSON text."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True)
class Message:
    """One message of a chat. `role` is system, user, assistant or tool."""

    role: str
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""  # role tool: the call that this answers
    name: str = ""


@dataclass(frozen=True)
class ToolChoice:
    """Whether and which tools the model calls.

    `mode`: auto: as it likes; required: at least one call; none: the model does not see the
    tools. `name`: with required, this one and no other; "": any. `parallel`: several calls in one
    answer are allowed. `constrain`: calls are held to the declared schemas while they are written.
    `in_thinking`: a sound call at the very end of thinking that was never closed counts.

    Raises:
        RequestError: a name without "required".
    """

    mode: ToolMode = "auto"
    name: str = ""
    parallel: bool = True
    constrain: bool = True
    in_thinking: bool = True

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "required", "none"):
            raise RequestError(
                f"tool_choice is {self.mode!r}", "Use auto, required, none, or name a function."
            )
        if self.name and self.mode != "required":
            raise RequestError(
                f"tool_choice names {self.name!r} and is {self.mode!r}",
                "A named function is always required.",
            )


@dataclass(frozen=True)
class ChatRequest:
    """Everything a chat needs: the one type that server, command line and Python hand over."""

    messages: tuple[Message, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    tools: tuple[Mapping[str, Any], ...] = ()  # OpenAI function declarations
    tool_choice: ToolChoice = ToolChoice()
    stop: tuple[str, ...] = ()  # strings that end the answer; not part of it
    thinking: bool | None = None  # None: as the model's template does by default
    thinking_budget: int | None = None  # most tokens of thinking; None: no limit
    template_args: Mapping[str, Any] = field(default_factory=dict)
    call_parts: bool = False  # calls are shown while they are written, as `CallPart` events
