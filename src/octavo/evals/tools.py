"""How well a model calls functions: questions asked, answers marked, counts added up.

Each answer gets four marks that build on one another: something that opens a call was said; every
call could be read; the calls are valid by their JSON schemas; they are the right ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any, Literal

from octavo.chat import Answer, Chat
from octavo.errors import RequestError, UnsupportedError
from octavo.evals import marking
from octavo.evals.bfcl import Case
from octavo.record import dataclass
from octavo.text import formats
from octavo.types import ChatRequest, SamplingParams, ToolCall, ToolChoice

Way = Literal["unconstrained", "constrained", "opened", "required"]
# The prompt and the reading of calls are the same in all. In the last two the answer begins with
# the opening of a call; in the second and the last it is held to the schemas from there on.
WAYS: Mapping[Way, ToolChoice] = {
    "unconstrained": ToolChoice(constrain=False),
    "constrained": ToolChoice(),
    "opened": ToolChoice("required", constrain=False),
    "required": ToolChoice("required"),
}


@dataclass(frozen=True)
class Marked:
    """One answer. `fault`: what is wrong, as `marking.fault` says, or call, reading, or refused."""

    case: Case
    way: Way
    answer: Answer
    called: bool = False
    readable: bool = False
    valid: bool = False
    fault: str = ""

    @property
    def right(self) -> bool:
        return not self.fault


@dataclass
class Score:
    """Counts of one subset under one way."""

    n: int = 0
    called: int = 0
    readable: int = 0
    valid: int = 0
    right: int = 0
    cut: int = 0  # by the limit of tokens
    tokens: int = 0  # generated
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, marked: Marked) -> None:
        self.n += 1
        self.called += marked.called
        self.readable += marked.readable
        self.valid += marked.valid
        self.right += marked.right
        self.cut += marked.answer.finish_reason == "length"
        self.tokens += marked.answer.usage.completion_tokens
        if marked.fault:
            self.faults[marked.fault] += 1


@dataclass(frozen=True)
class Manner:
    """How questions are asked: `n_at_once` of them, `thinking` as in `ChatRequest`."""

    params: SamplingParams
    thinking: bool | None = None
    thinking_budget: int | None = None
    n_at_once: int = 4


def ask_all(
    chat: Chat, cases: Iterable[Case], ways: Sequence[Way], manner: Manner
) -> Iterator[Marked]:
    """Every case in every way, in an order in which a prompt is found in the cache again.

    Raises:
        UnsupportedError: the model has no chat template, or calls in no way that is known.
    """
    opening = _opening(chat)
    ask = partial(_ask, chat, manner, opening)
    with ThreadPoolExecutor(manner.n_at_once) as pool:
        try:
            rest = iter(cases)
            while group := list(islice(rest, manner.n_at_once)):
                pairs = [(case, way) for way in ways for case in group]
                yield from pool.map(ask, pairs)
        finally:
            pool.shutdown(cancel_futures=True)


def _opening(chat: Chat) -> str:
    template = chat.template
    if template is None:
        raise UnsupportedError(
            "The model's file has no chat template, so it was not trained to answer or to call",
            "Give a model made for chats.",
        )
    dialect = formats.of_template(template.source)
    if dialect is None:
        raise UnsupportedError(
            "It is not known how this model writes calls", "docs/tools.md has the known dialects."
        )
    return dialect.opening


def _ask(chat: Chat, manner: Manner, opening: str, pair: tuple[Case, Way]) -> Marked:
    case, way = pair
    request = ChatRequest(
        case.messages,
        manner.params,
        case.tools,
        WAYS[way],
        thinking=manner.thinking,
        thinking_budget=manner.thinking_budget,
    )
    try:
        answer = chat.ask(request).whole()
    except RequestError as error:  # of this question alone: too long, or a schema
        return Marked(case, way, Answer(content=str(error)), fault="refused")
    return mark(case, way, answer, opening)


def mark(case: Case, way: Way, answer: Answer, opening: str) -> Marked:
    """The marks of an answer. `opening`: what a call begins with in the model's dialect."""
    calls = answer.tool_calls
    left = opening in answer.content
    readable = bool(calls) and not left
    if readable:
        fault = marking.fault(case.functions, calls, case.answers)
    else:
        fault = "reading" if left else "call"
    valid = readable and are_valid(case, calls)
    return Marked(case, way, answer, bool(calls) or left, readable, valid, fault)


def are_valid(case: Case, calls: Iterable[ToolCall]) -> bool:
    """Whether all calls are of declared functions, with arguments by their schemas."""
    from jsonschema import Draft202012Validator

    declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case.tools}
    return all(
        call.name in declared
        and Draft202012Validator(declared[call.name]).is_valid(json.loads(call.arguments))
        for call in calls
    )


def as_row(marked: Marked) -> dict[str, Any]:
    """An answer for those who look for reasons."""
    answer = marked.answer
    return {
        "id": marked.case.id,
        "way": marked.way,
        "fault": marked.fault,
        "valid": marked.valid,
        "content": answer.content,
        "calls": [{call.name: json.loads(call.arguments)} for call in answer.tool_calls],
        "answers": list(marked.case.answers),
        "finish_reason": answer.finish_reason,
        "tokens": answer.usage.completion_tokens,
    }
