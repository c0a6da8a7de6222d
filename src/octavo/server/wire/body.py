"""What request bodies of all families share: sampling, grammars, and thinking on, off, limited.

Fields that are not known are ignored: clients send many. Known ones are checked, here by type
and in `SamplingParams` by range.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from octavo.errors import RequestError
from octavo.server.wire.declared import Bias, Format, Never, add_ranges
from octavo.types import GrammarSpec, SamplingParams

ANY_OBJECT = GrammarSpec("json_schema", '{"type": "object"}')
_NO_THINKING = ("none", "off", "disabled", "minimal", "false")


class Body(BaseModel):
    """A request as JSON."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class SamplingBody(Body):
    """How tokens are chosen, with OpenAI's names and llama.cpp's."""

    model_config = ConfigDict(json_schema_extra=add_ranges)

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n_predict: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    logit_bias: Bias = None
    response_format: Format = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: Annotated[str | None, Never] = None
    return_progress: bool | None = None

    def sampling(self, n_logprobs: int | None = None) -> SamplingParams:
        """As the engine takes it.

        Raises:
            RequestError: a value is outside its range, or a grammar of an unknown kind.
        """
        own = {name: getattr(self, name) for name in _PLAIN}
        own["max_tokens"] = self._limit()
        own["dry_last_n"] = self.dry_penalty_last_n
        own["logit_bias"] = _bias(self.logit_bias) if self.logit_bias else None
        own["seed"] = _seed(self.seed)
        own["report_progress"] = self.return_progress
        given = {name: value for name, value in own.items() if value is not None}
        return SamplingParams(**given, n_logprobs=n_logprobs, grammar=self._grammar())

    def _limit(self) -> int | None:
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((n for n in limits if n is not None), None)

    def _grammar(self) -> GrammarSpec | None:
        if self.grammar:
            raise RequestError("grammar (GBNF) is not supported", "Use response_format.")
        if self.json_schema is not None:
            return GrammarSpec("json_schema", json.dumps(self.json_schema))
        return response_grammar(self.response_format)


_PLAIN = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n"),
    *("frequency_penalty", "presence_penalty", "dry_multiplier", "dry_base"),
    *("dry_allowed_length", "ignore_eos"),
)


def left_out(kind: object) -> str:
    """What stands for a part that the model cannot read: named, so that an agent can go on."""
    return f"[a part of the type {kind} was left out: this model reads text only]"


def response_grammar(given: Any) -> GrammarSpec | None:
    """What `response_format` asks for: OpenAI's form, or llama.cpp's with the schema beside.

    Raises:
        RequestError: another type, or a schema is missing.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise RequestError("the format of the answer is no object", "Give it a type.")
    kind, nested = given.get("type", "text"), given.get("json_schema")
    schema = nested.get("schema") if isinstance(nested, dict) else given.get("schema")
    if kind == "text":
        return None
    if kind == "json_object" and schema is None:
        return ANY_OBJECT
    if kind not in ("json_object", "json_schema"):
        raise RequestError(
            f"response_format.type is {kind!r}", "Use text, json_object or json_schema."
        )
    if not isinstance(schema, (dict, bool)):
        raise RequestError(
            "response_format has no schema", "It belongs in response_format.json_schema.schema."
        )
    return GrammarSpec("json_schema", json.dumps(schema))


class ThinkingBody(Body):
    """Every spelling of thinking on, off and limited that clients use."""

    enable_thinking: bool | None = None  # Qwen's, at the top
    chat_template_kwargs: dict[str, Any] | None = None  # the same, as vLLM and llama.cpp have it
    reasoning_effort: str | None = None  # OpenAI
    reasoning: dict[str, Any] | None = None  # OpenAI's Responses, OpenRouter
    reasoning_budget: int | None = None  # llama.cpp: -1 no limit, 0 off
    thinking_budget: int | None = None
    thinking_budget_tokens: int | None = None
    think: bool | str | None = None  # Ollama
    thinking: dict[str, Any] | bool | str | None = None  # Anthropic

    def read_thinking(self) -> Thinking:
        """The one meaning of them all. Off wins over on, the smaller limit over the larger."""
        args = dict(self.chat_template_kwargs or {})
        reasoning = self.reasoning or {}
        thinking = self.thinking if isinstance(self.thinking, dict) else {"type": self.thinking}
        effort = self.reasoning_effort or reasoning.get("effort")
        wishes = [
            _is_on(self.enable_thinking),
            _is_on(args.pop("enable_thinking", None)),
            _is_on(args.get("thinking")),
            _is_on(effort),
            _is_on(reasoning.get("enabled")),
            _is_on(self.think),
            None if thinking.get("type") == "adaptive" else _is_on(thinking.get("type")),
        ]
        budgets = [
            self.reasoning_budget,
            self.thinking_budget,
            self.thinking_budget_tokens,
            _whole(reasoning.get("max_tokens")),
            _whole(thinking.get("budget_tokens")),
        ]
        limits = [n for n in budgets if n is not None and n >= 0]
        if isinstance(effort, str) and effort not in _NO_THINKING:
            args.setdefault("reasoning_effort", effort)
        on = False if False in wishes or 0 in limits else True if True in wishes else None
        return Thinking(on, min(limits, default=None), args)


@dataclass(frozen=True)
class Thinking:
    """`on` None: as the model does. `template_args` are further variables of the template."""

    on: bool | None = None
    budget: int | None = None
    template_args: Mapping[str, Any] = field(default_factory=dict)


def _is_on(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    return str(value).lower() not in _NO_THINKING


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seed(seed: int | None) -> int | None:
    """-1 is llama.cpp's word for a fresh one; other negative ones wrap."""
    if seed is None or seed == -1:
        return None
    return seed % 2**64


def _bias(given: dict[str, float] | list[tuple[int, float | bool]]) -> dict[int, float]:
    """Id -> bias; False forbids the token.

    Raises:
        RequestError: a key is no id.
    """
    pairs = given.items() if isinstance(given, dict) else given
    bias: dict[int, float] = {}
    for key, value in pairs:
        text = str(key)
        if not text.isdecimal():
            raise RequestError(f"logit_bias has the key {text!r}", "Keys are token ids.")
        bias[int(text)] = float("-inf") if value is False else float(value)
    return bias


def stops(given: str | list[str] | None) -> tuple[str, ...]:
    """Stop strings, written alone or as a list."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
