"""Harmony (gpt-oss): an answer is messages, each on a channel.

    <|channel|>analysis<|message|>THINKING<|end|>
    <|start|>assistant
    <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{"KEY": VALUE}<|call|>
    <|start|>assistant<|channel|>final<|message|>ANSWER<|return|>

(The line breaks are not there.) The text between `<|channel|>` or `<|start|>` and `<|message|>`
says what the message is: with `to=functions.NAME` anywhere in it a call, on the channel `analysis`
thinking, else answer. The model stops at `<|call|>`.

Selected by `<|channel|>` and `<|message|>` in the template.
"""

from __future__ import annotations

import re

from octavo.text.formats._declared import Tools
from octavo.text.formats._dialect import Dialect
from octavo.text.formats._json import parse
from octavo.text.formats._lark import Lark
from octavo.text.formats._parts import JsonArguments, Showing
from octavo.text.split import Content, Event, Reasoning, overlap

_CHANNEL, _START, _MESSAGE, _CONSTRAIN = "<|channel|>", "<|start|>", "<|message|>", "<|constrain|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")


def dialect(source: str) -> Dialect | None:
    """This dialect, if the template asks for it."""
    if _CHANNEL not in source or _MESSAGE not in source:
        return None
    return Dialect("harmony", f"{_CHANNEL}commentary to=functions.", MessageParser, _add_rules)


class MessageParser:
    """A `ContentParser` that follows the messages. Text outside of any message is answer."""

    tags: tuple[str, ...] = (_CHANNEL, _START, _MESSAGE, _CONSTRAIN, *_ENDS)

    def __init__(self, tools: Tools, in_parts: bool = False) -> None:
        self._tools = tools
        self._in_parts = in_parts
        self._showing = Showing()
        self._held = ""
        self._header: str | None = None  # of the message that is open or begins; None: outside
        self._in_body = False
        self._arguments = ""

    def push(self, text: str) -> list[Event]:
        """Events that are certain with this text."""
        self._held += text
        events: list[Event] = []
        while self._step(events):
            pass
        return events

    def finish(self) -> list[Event]:
        """What was held back: a call that lacks its end tag counts if its JSON is whole."""
        events: list[Event] = []
        if self._header is not None and not self._in_body:
            return events  # half a header says nothing
        self._take(self._held, events)
        if self._name is not None:
            self._call(events, is_cut=True)
        self._held = ""
        return events

    @property
    def _name(self) -> str | None:
        """The function that the message calls."""
        found = _RECIPIENT.search(self._header or "")
        return found[1] if found else None

    def _step(self, events: list[Event]) -> bool:
        """Use up the held text to the next tag; False: there is none yet."""
        waits_for = (
            (_MESSAGE,) if self._header is not None and not self._in_body else self._borders()
        )
        found = min(
            ((i, tag) for tag in waits_for if (i := self._held.find(tag)) >= 0), default=None
        )
        if found is None:
            if waits_for != (_MESSAGE,):
                certain = len(self._held) - overlap(self._held, waits_for)
                self._take(self._held[:certain], events)
                self._held = self._held[certain:]
            return False
        at, tag = found
        before, self._held = self._held[:at], self._held[at + len(tag) :]
        if tag == _MESSAGE:
            if self._header is None:
                self._take(before, events)
                before = ""
            self._header, self._in_body, self._arguments = before, True, ""
            self._announce()
            return True
        self._take(before, events)
        if self._in_body and self._name is not None:
            self._call(events)
        self._header, self._in_body = None if tag in _ENDS else "", False
        return True

    def _borders(self) -> tuple[str, ...]:
        return (*_ENDS, _CHANNEL, _START, *(() if self._in_body else (_MESSAGE,)))

    def _take(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if not self._in_body or self._header is None:
            events.append(Content(text))
        elif self._name is not None:
            self._arguments += text
            events += self._showing.more(self._arguments)
        elif "analysis" in self._header:
            events.append(Reasoning(text))
        else:
            events.append(Content(text))

    def _announce(self) -> None:
        name = self._name
        if self._in_parts and name is not None and name in self._tools:
            self._showing.begin(JsonArguments(self._tools, name, 0))

    def _call(self, events: list[Event], is_cut: bool = False) -> None:
        given = parse(self._arguments) if self._arguments.strip() else {}
        if isinstance(given, dict) and self._name is not None:
            events += self._showing.end(self._tools.call(self._name, given))
        elif not (is_cut and self._showing.is_on):  # what was seen as a call stays one
            events.append(Content(self._arguments))
        self._showing.give_up()
        self._header = None


def _add_rules(lark: Lark, tools: Tools, many: bool) -> None:
    """One call: the model stops behind it, so there are no further ones in an answer."""
    kind = f'(" " {lark.tag(_CONSTRAIN)} "json")?'
    head = f"{kind} {lark.tag(_MESSAGE)}"
    choices = [
        f"{lark.literal(tool.name)} {head} {lark.object(tool, f'args_{i}')}"
        for i, tool in enumerate(tools)
    ]
    lark.add("calls", "\n  | ".join(choices))
