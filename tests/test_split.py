"""Splitting an answer: however it is cut into tokens, the same events come out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.split import Content, Event, Reasoning, ReasoningSplitter, Splitter, StopMatcher
from octavo.text.tokenizer import Tokenizer
from vocabularies import bpe

THINK = ("<think>", "</think>")


@cache
def _tokenizer() -> Tokenizer:
    return bpe("qwen2")


def _byte_ids(data: bytes) -> list[int]:
    """One token a byte."""
    by_piece = {_tokenizer().piece(token): token for token in range(256)}
    return [by_piece[data[i : i + 1]] for i in range(len(data))]


def _run(splitter: Splitter, ids: Iterable[int]) -> list[Event]:
    events = [event for token in ids for event in splitter.push(token)]
    return events + splitter.finish()


def _joined(events: Iterable[Event], kind: type[Content] | type[Reasoning]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def _split(
    text: str, *, in_reasoning: bool = False, tags: tuple[str, str] | None = THINK
) -> tuple[str, str]:
    """(thinking, answer) of a text given at once."""
    splitter = ReasoningSplitter(tags, in_reasoning)
    parts = splitter.push(text) + splitter.finish()
    return _joined(parts, Reasoning), _joined(parts, Content)


@pytest.mark.parametrize(
    ("text", "in_reasoning", "expected"),
    [
        ("<think>\nhm\n</think>\n\nyes", False, ("hm", "yes")),
        ("  \n<think>hm</think>yes", False, ("hm", "yes")),
        ("hm\n</think>\n\nyes", True, ("hm", "yes")),
        ("<think>\nhm</think>yes", True, ("hm", "yes")),  # the tag again: once is enough
        ("yes", False, ("", "yes")),
        ("  yes\n", False, ("", "  yes\n")),
        ("say <think> and </think>", False, ("", "say <think> and </think>")),
        ("a</think>b</think>c", True, ("a", "b</think>c")),
        ("never ends \n", True, ("never ends", "")),
        ("half </thin", True, ("half </thin", "")),
        ("a < b", True, ("a < b", "")),
        ("<thi", False, ("", "<thi")),
        ("<think></think>", False, ("", "")),
        ("</think>yes", True, ("", "yes")),
        ("", True, ("", "")),
        ("", False, ("", "")),
        (" \n", False, ("", " \n")),
        ("</think> \n", True, ("", "")),
    ],
)
def test_thinking_and_answer(text: str, in_reasoning: bool, expected: tuple[str, str]) -> None:
    assert _split(text, in_reasoning=in_reasoning) == expected


def test_a_model_without_tags_only_answers() -> None:
    assert _split("<think>x</think>", in_reasoning=True, tags=None) == ("", "<think>x</think>")


_pieces = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "think", ">", " ", "\n", "STOP", "ST", "é"])
    | st.text(max_size=4),
    max_size=12,
)


@given(_pieces, st.booleans())
def test_cuts_do_not_matter_to_thinking(pieces: list[str], in_reasoning: bool) -> None:
    for cut in (pieces, list("".join(pieces))):
        splitter = ReasoningSplitter(THINK, in_reasoning)
        parts = [part for piece in cut for part in splitter.push(piece)] + splitter.finish()
        found = _joined(parts, Reasoning), _joined(parts, Content)
        assert found == _split("".join(pieces), in_reasoning=in_reasoning)


def _before_stop(text: str, stop: Sequence[str]) -> str:
    """The rule spelled out: go on letter by letter until the text ends with a stop string."""
    for end in range(len(text) + 1):
        ending = [s for s in stop if s and text[:end].endswith(s)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


@given(
    st.lists(st.text("ab", max_size=4), max_size=8),
    st.lists(st.text("ab", max_size=4), max_size=3),
)
def test_stop_strings_across_cuts(pieces: list[str], stop: list[str]) -> None:
    matcher = StopMatcher(stop)
    text = "".join(map(matcher.push, pieces)) + matcher.finish()
    assert text == _before_stop("".join(pieces), stop)
    assert (matcher.found is None) == (text == "".join(pieces))


def test_nothing_is_held_that_cannot_be_a_stop_string() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.push("a ST") == "a "
    assert matcher.push("A") == "STA"
    assert matcher.push("STO") == ""
    assert matcher.finish() == "STO"


def test_nothing_is_held_that_cannot_be_a_tag() -> None:
    splitter = ReasoningSplitter(THINK, True)
    assert splitter.push("a </thi") == [Reasoning("a")]
    assert splitter.push("s is") == [Reasoning(" </this is")]


@given(
    st.lists(
        st.one_of(st.sampled_from([*THINK, " ", "\n", "STOP", "STO", "😸"]), st.text(max_size=5))
    )
)
def test_bytes_give_what_the_text_gives(pieces: list[str]) -> None:
    """One token a byte, against the whole text at once."""
    text = "".join(pieces)
    splitter = Splitter(_tokenizer(), stop=["STOP"], reasoning_tags=THINK, in_reasoning=True)
    events = _run(splitter, _byte_ids(text.encode()))
    thinking, answer = _split(text, in_reasoning=True)
    assert _joined(events, Reasoning) == thinking
    assert _joined(events, Content) == _before_stop(answer, ["STOP"])
    assert splitter.stop_text == ("STOP" if "STOP" in answer else None)


@given(st.binary(max_size=40))
def test_any_bytes_become_text(data: bytes) -> None:
    events = _run(Splitter(_tokenizer()), _byte_ids(data))
    assert _joined(events, Content) == data.decode("utf-8", "replace")
    assert all(isinstance(event, Content) and event.text for event in events)


@given(st.lists(st.sampled_from([*THINK, "a", " ", "\n", "<|im_end|>"]), max_size=10))
def test_tags_as_tokens_and_as_letters(pieces: list[str]) -> None:
    """A tag is a tag, whether the model writes it as one token or spells it."""
    ids = {piece: _tokenizer().encode(piece, parse_special=True) for piece in pieces}
    tokens = [token for piece in pieces for token in ids[piece]]
    shown = "".join(pieces).replace("<|im_end|>", "")
    events = _run(Splitter(_tokenizer(), reasoning_tags=THINK), tokens)
    assert (_joined(events, Reasoning), _joined(events, Content)) == _split(shown)


def test_tags_that_are_control_tokens_are_seen() -> None:
    tokenizer = bpe("qwen2", control=("[THINK]", "[/THINK]"))
    splitter = Splitter(tokenizer, reasoning_tags=("[THINK]", "[/THINK]"))
    events = _run(splitter, tokenizer.encode("[THINK]hm[/THINK]yes", parse_special=True))
    assert (_joined(events, Reasoning), _joined(events, Content)) == ("hm", "yes")


def test_nothing_comes_after_a_stop_string() -> None:
    splitter = Splitter(_tokenizer(), stop=["river"])
    events = [splitter.push(token) for token in _byte_ids(b"the river is")]
    assert _joined([event for some in events for event in some], Content) == "the "
    assert splitter.finish() == []
    assert splitter.stop_text == "river"


def test_half_a_stop_string_is_text_at_the_end() -> None:
    events = _run(Splitter(_tokenizer(), stop=["river"]), _byte_ids(b"the riv"))
    assert _joined(events, Content) == "the riv"


def test_a_stop_string_does_not_end_thinking() -> None:
    splitter = Splitter(_tokenizer(), stop=["x"], reasoning_tags=THINK, in_reasoning=True)
    events = _run(splitter, _byte_ids(b"x</think>yxz"))
    assert events[0] == Reasoning("x")
    assert _joined(events, Content) == "y"


def test_whether_the_model_still_thinks() -> None:
    splitter = Splitter(_tokenizer(), reasoning_tags=THINK, in_reasoning=True)
    seen = [splitter.in_reasoning]
    for token in (*_tokenizer().encode("hm"), *_tokenizer().encode("</think>")):
        splitter.push(token)
        seen.append(splitter.in_reasoning)
    assert seen[0]
    assert seen[-2]
    assert not seen[-1]


class _Shout:
    """A parser that changes the answer and says when it ends."""

    tags = ("<tool_call>",)

    def push(self, text: str) -> list[Event]:
        return [Content(text.upper())]

    def finish(self) -> list[Event]:
        return [Content("!")]


def test_a_parser_sees_the_answer_only() -> None:
    splitter = Splitter(
        _tokenizer(), stop=["x"], reasoning_tags=THINK, in_reasoning=True, parser=_Shout()
    )
    events = _run(splitter, _byte_ids(b"hm</think>yesx no"))
    assert _joined(events, Reasoning) == "hm"
    assert _joined(events, Content) == "YES!"
