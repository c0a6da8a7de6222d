"""Calls in parts: what is shown while a call is written is what the whole call has."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import octavo
from octavo.chat import Content, ToolCalled
from octavo.text import formats
from octavo.text.formats._declared import Tools
from octavo.text.split import CallPart, Event
from octavo.types import SamplingParams, ToolChoice
from test_chat import END, Case
from test_formats import DECLARED, _nasty
from test_tool_mode import CALL as READ_CALL
from test_tool_mode import NAMES, READ, TOOLED, _random_request
from tool_texts import TEMPLATES, written

TOOLS = Tools(DECLARED)


class Complaints(logging.Handler):
    """What the readers complain of: that a call was not what was shown of it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def events_of(dialect: str, pieces: Iterable[str], in_parts: bool = True) -> list[Event]:
    found = formats.of_template(TEMPLATES[dialect])
    assert found is not None
    parser = found.make_parser(TOOLS, in_parts)
    return [e for piece in pieces for e in parser.push(piece)] + parser.finish()


def joined(events: Sequence[Event]) -> tuple[str, list[tuple[str, str]]]:
    """(answer, calls), and a check that parts and calls say the same."""
    parts: dict[str, str] = {}
    calls = []
    for event in events:
        if isinstance(event, CallPart):
            parts[event.id] = parts.get(event.id, "") + event.text
        elif isinstance(event, ToolCalled):
            call = event.call
            assert parts.pop(call.id, call.arguments) == call.arguments
            calls.append((call.name, call.arguments))
    return "".join(e.text for e in events if isinstance(e, Content)), calls


def cuts_of(text: str, cuts: Iterable[int]) -> list[str]:
    places = sorted({0, len(text), *(c % (len(text) + 1) for c in cuts)})
    return [text[a:b] for a, b in zip(places, places[1:], strict=False)]


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_calls = st.fixed_dictionaries(
    {"path": _nasty, "content": _nasty},
    optional={
        "mode": st.integers(),
        "tags": st.lists(st.text(max_size=5), max_size=3),
        "options": st.dictionaries(st.sampled_from(["a", "b c", "é"]), _values, max_size=3),
        "deep": st.none() | st.booleans(),
    },
)
_cuts = st.lists(st.integers(0, 10_000), max_size=12)


def with_bare_keys(value: Any) -> Any:
    """Gemma's notation has no way to write a key that begins with a quote."""
    if isinstance(value, dict):
        return {key.replace('"', "'"): with_bare_keys(own) for key, own in value.items()}
    return [with_bare_keys(own) for own in value] if isinstance(value, list) else value


@pytest.mark.parametrize("dialect", TEMPLATES)
@given(_calls, _cuts, st.randoms())
def test_parts_joined_are_the_arguments(
    dialect: str, arguments: dict[str, Any], cuts: list[int], order: Any
) -> None:
    keys = list(arguments)
    order.shuffle(keys)
    if dialect.startswith("gemma"):
        arguments = with_bare_keys(arguments)
    text = written(dialect, [("write", {key: arguments[key] for key in keys})])
    expected = joined(events_of(dialect, [text], in_parts=False))
    for pieces in ([text], list(text), cuts_of(text, cuts)):
        assert joined(events_of(dialect, pieces)) == expected


_soup = st.lists(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "<function=write>", "</function>", "</parameter>"),
            *("<parameter=path>", "<parameter=mode>", "<parameter=content>", "\n", "\n", " ", "x"),
            *(
                '{"name": "write", "arguments": ',
                '"path": "a',
                '"mode": 5',
                '"content": ',
                "{",
                "}",
            ),
            *('"', ",", "\\u00e9", "\\ud83d", "\\ude00", "\\", '\\"', "5", "true", "[", "]", "é"),
            *("[TOOL_CALLS]", "[ARGS]", "write", "<|channel|>commentary to=functions.write"),
            *("<|message|>", "<|call|>", "<|tool_call>", "call:write{", "path:", '<|"|>', "mode:"),
            *("<tool_call|>", "\n</parameter>\n", "\n</parameter>\n</function>", ">\n"),
        ]
    ),
    max_size=30,
).map("".join)


@pytest.mark.parametrize("dialect", TEMPLATES)
@given(_soup, _cuts)
def test_nothing_is_shown_that_has_to_be_taken_back(
    dialect: str, text: str, cuts: list[int]
) -> None:
    """Also where the text breaks the rules of the dialect, and whatever the tolerant ones do."""
    opening = written(dialect, [("write", {"path": "p", "content": "c"})])
    text = opening[: len(opening) // 2] + text
    complaints = Complaints()
    log = logging.getLogger("octavo.text.formats._parts")
    log.addHandler(complaints)
    try:
        said = [
            joined(events_of(dialect, pieces)) for pieces in ([text], text, cuts_of(text, cuts))
        ]
    finally:
        log.removeHandler(complaints)
    assert not [line for line in complaints.said if "another" in line]
    assert said[0][1] == said[1][1] == said[2][1]


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_a_text_streams_while_it_is_written(dialect: str) -> None:
    text = written(dialect, [("write", {"path": "/x", "content": "word " * 50, "mode": 7})])
    half = text[: text.index("word ") + 100]
    shown = "".join(e.text for e in events_of(dialect, half) if isinstance(e, CallPart))
    assert shown.startswith('{"path": "/x", "content": "word word')
    assert len(shown) > 90
    name = [e.name for e in events_of(dialect, half) if isinstance(e, CallPart)][0]
    assert name == "write"


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_what_has_no_end_was_a_call_and_is_no_text(dialect: str) -> None:
    text = written(dialect, [("write", {"path": "/x", "content": "word " * 50})])
    text = text[: text.index("word ") + 100]
    content, calls = joined(events_of(dialect, text))
    assert (content, calls) == ("", [])
    whole, _ = joined(events_of(dialect, text, in_parts=False))
    assert whole


def test_half_a_pair_waits_for_the_other() -> None:
    arguments = r'{"path": "\ud83d\ude38 \\ud83d \ud83dx \ud83d", "content": "\/\u00e9"}'
    text = f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>'
    _, [(_, found)] = joined(events_of("hermes", list(text)))
    assert found == r'{"path": "😸 \\ud83d \ud83dx \ud83d", "content": "/é"}'
    assert json.loads(found) == json.loads(arguments)
    for event in events_of("hermes", list(text)):
        if isinstance(event, CallPart):
            event.text.encode()


# Through chat.py.


def test_chat_shows_parts_of_constrained_calls_only() -> None:
    text = f"</think>\n\n{written('qwen3_xml', [READ_CALL])}{END}"
    for options, wanted in (
        ({"call_parts": True}, True),
        ({}, False),
        ({"call_parts": True, "tool_choice": ToolChoice(constrain=False)}, False),
    ):
        reply = Case(TOOLED, text).start(tools=(READ,), **options)
        events = list(reply)
        assert any(isinstance(e, CallPart) for e in events) == wanted
        _, [(name, arguments)] = joined(events)
        assert (name, json.loads(arguments)) == READ_CALL
        assert [c.arguments for c in reply.answer.tool_calls] == [arguments]


def test_a_call_that_is_cut_off_is_not_in_the_answer() -> None:
    text = f"</think>\n\n{written('qwen3_xml', [READ_CALL])}"
    case = Case(TOOLED, text[: text.index("a.txt") + 3])
    reply = case.start(tools=(READ,), call_parts=True, params=SamplingParams(max_tokens=500))
    shown = "".join(e.text for e in reply if isinstance(e, CallPart))
    assert shown == '{"path": "a.t'
    assert (reply.answer.content, reply.answer.tool_calls) == ("", [])


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_xml"])
def test_a_model_of_random_weights_is_shown_as_it_calls(
    tiny_file: Callable[..., Path], dialect: str
) -> None:
    changes = {
        "block_count": 1,
        "context_length": 2048,
        "tokenizer.chat_template": f"{NAMES}{TEMPLATES[dialect]} #}}",
    }
    with octavo.load(tiny_file("qwen3", changes=changes), context=2048, sequences=4) as session:
        for seed in range(8):
            events = list(session.ask(replace(_random_request(seed), call_parts=True)))
            shown = "".join(e.text for e in events if isinstance(e, CallPart))
            _, [(_, arguments)] = joined(events)
            assert shown == arguments
