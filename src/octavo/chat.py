"""ChatRequest -> a `Reply`: the one way to an answer, for command line, Python and server.

Conducts template (messages -> ids), engine (ids -> ids) and split (ids -> text, parted into
answer, thinking and tool calls). It owns what "thinking on, off, budget" mean. It sees no
arrays, and the engine sees no text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from octavo.errors import RequestError, UnsupportedError
from octavo.reply import Answer, Reply, ThinkingLimit, TokenSource
from octavo.text.calling import Calling
from octavo.text.split import Content, Event, Reasoning, Splitter, ToolCalled
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, GrammarSpec, Message, SamplingParams

__all__ = [
    "Answer",
    "Chat",
    "Content",
    "Event",
    "Messages",
    "Reasoning",
    "Reply",
    "ToolCalled",
    "messages_of",
    "params_of",
]

Messages = str | Sequence[Message | Mapping[str, Any]]

# What is put into the model's mouth when its thinking has to end.
ENOUGH = "\n\nI have thought enough and answer now."
ANSWER_SHARE = 4  # of a limited number of tokens one in so many is kept for the answer


class Chat:
    """Answers requests of one model. Safe to use from several threads."""

    def __init__(
        self, engine: TokenSource, tokenizer: Tokenizer, template: Template | None
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self.template = template

    def ask(self, request: ChatRequest) -> Reply:
        """Start to answer a chat.

        Raises:
            UnsupportedError: the file has no chat template.
            TemplateError: the template refuses the messages.
            RequestError: a parameter is wrong, or a tool's schema.
        """
        template = self.template
        if template is None:
            raise UnsupportedError(
                "The model's file has no chat template", "Continue a text instead of a chat."
            )
        _check_thinking(request, template)
        calling = Calling.of(request, template, self._tokenizer)
        if calling is None:
            request = replace(request, tools=())
        prompt, tags = template.prompt(request), template.reasoning_tags
        ids, in_reasoning = prompt.ids, prompt.in_reasoning
        if tags and _must_not_think(request, template, in_reasoning):
            # The template has no switch for it: the thinking is over before it begins.
            opening = "" if in_reasoning else f"{tags[0]}\n"
            ids = ids + self._encode(f"{opening}\n{tags[1]}\n\n")
            in_reasoning = False
        params, in_parts = request.params, False
        if calling and params.grammar is None:
            params = replace(params, grammar=calling.grammar(tags, in_reasoning))
            in_parts = request.call_parts and params.grammar is not None
        splitter = Splitter(
            self._tokenizer,
            stop=request.stop,
            reasoning_tags=tags,
            in_reasoning=in_reasoning,
            parser=calling.parser(in_parts) if calling else None,
            thought_calls=calling.thought_calls() if calling else None,
        )
        limit = self._limit(request, tags[1]) if tags else None
        return Reply(self._engine, ids, params, self._marks(prompt.ids), splitter, limit)

    def complete(
        self, prompt: str | Sequence[int], params: SamplingParams, stop: Sequence[str] = ()
    ) -> Reply:
        """Start to continue a text, or ids, as it is: no template, no thinking, no tool calls.

        Raises:
            RequestError: a parameter is wrong, or the text is empty and the model needs one.
        """
        if isinstance(prompt, str):
            prompt = self._tokenizer.with_bos(self._encode(prompt))
        splitter = Splitter(self._tokenizer, stop=stop)
        return Reply(self._engine, prompt, params, (len(prompt) - 1,), splitter)

    def _marks(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where other prompts may branch off: ends of the first and the last message.

        The first ends behind system prompt and tools. Without any end: before the last token.
        """
        stops = self._tokenizer.stop_ids
        ends = [at + 1 for at, token in enumerate(ids) if token in stops]
        return (ends[0], ends[-1]) if ends else (len(ids) - 1,)

    def _limit(self, request: ChatRequest, closing_tag: str) -> ThinkingLimit:
        return ThinkingLimit(
            n_tokens=_thinking_tokens(request),
            enough=tuple(self._encode(f"{ENOUGH}\n{closing_tag}\n\n")),
            closing=tuple(self._encode(f"\n{closing_tag}\n\n")),
            gap=tuple(self._encode("\n\n")),
        )

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=True)


def _check_thinking(request: ChatRequest, template: Template) -> None:
    if template.reasoning_tags is None and (request.thinking or request.thinking_budget):
        raise RequestError(
            "This model does not think: its chat template has no tags for it",
            "Leave the thinking options out.",
        )


def _must_not_think(request: ChatRequest, template: Template, in_reasoning: bool) -> bool:
    """Whether thinking was ruled out, and the template alone does not see to it."""
    if request.thinking is False or request.thinking_budget == 0:
        return in_reasoning or not template.has_thinking_switch
    return False


def _thinking_tokens(request: ChatRequest) -> int | None:
    """Most tokens of thinking, so that some are left for the answer."""
    limits = [request.thinking_budget] if request.thinking_budget is not None else []
    if request.params.max_tokens >= 0:
        limits.append(request.params.max_tokens * (ANSWER_SHARE - 1) // ANSWER_SHARE)
    return min(limits, default=None)


def params_of(sampling: Mapping[str, Any], json_schema: Mapping[str, Any] | None) -> SamplingParams:
    """Sampling parameters from the arguments of a call.

    Raises:
        RequestError: there is no such parameter, or its value is out of range.
    """
    known = SamplingParams.__dataclass_fields__.keys()
    if unknown := sampling.keys() - known:
        raise RequestError(
            f"There is no argument {', '.join(sorted(unknown))}",
            f"For sampling there are {', '.join(known)}.",
        )
    given = dict(sampling)
    if json_schema is not None:
        given["grammar"] = GrammarSpec("json_schema", json.dumps(json_schema))
    return SamplingParams(**given)


def messages_of(given: Messages) -> tuple[Message, ...]:
    """A question, or messages as they are or as mappings.

    Raises:
        RequestError: a mapping lacks a role, or has a key that messages have not.
    """
    if isinstance(given, str):
        return (Message("user", given),)
    return tuple(m if isinstance(m, Message) else _message(m) for m in given)


def _message(given: Mapping[str, Any]) -> Message:
    known = Message.__dataclass_fields__.keys()
    if "role" not in given or given.keys() - known:
        raise RequestError(
            f"A message has the keys {', '.join(map(str, given))}",
            f"It needs role and content, and may have {', '.join(known)}.",
        )
    return Message(**given)
