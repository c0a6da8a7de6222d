"""Arguments of a call while it is written: as much of their JSON as is certain already.

What was shown cannot be taken back, so each reader here shows only what every rule of its dialect,
the tolerant ones too, would make of the text, whatever follows. Strings that stay strings are
shown as they grow, other values when they are whole.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from octavo.text.formats._declared import Tools, new_id
from octavo.text.formats._json import ARGUMENT_KEYS, value_end
from octavo.text.formats._values import as_json, coerce, keeps_text, read_json
from octavo.text.split import CallPart, Event, ToolCalled
from octavo.types import ToolCall

LOG = logging.getLogger(__name__)


class Growing(Protocol):
    """A call whose function is known. `id` is "" where the model gives none."""

    name: str
    id: str

    def more(self, text: str) -> str:
        """Arguments that became certain. `text` is the same as before, or longer."""
        ...


# (tools, text, where a call opens in it) -> the call, when its function is known.
Watch = Callable[[Tools, str, int], Growing | None]


class Showing:
    """Makes events of one call after another."""

    def __init__(self) -> None:
        self._growing: Growing | None = None
        self._id = ""
        self._shown = ""

    @property
    def is_on(self) -> bool:
        """Whether a call was announced that is not whole yet."""
        return self._growing is not None

    def begin(self, growing: Growing) -> None:
        self._growing, self._id, self._shown = growing, growing.id or new_id(), ""

    def more(self, text: str) -> list[Event]:
        """The part that is new with this text."""
        if self._growing is None:
            return []
        is_first, part = not self._shown, self._growing.more(text)
        self._shown += part
        return [CallPart(self._id, self._growing.name, part)] if part or is_first else []

    def end(self, call: ToolCall) -> list[Event]:
        """The call is whole: what is left of it."""
        growing, self._growing = self._growing, None
        if growing is None:
            return [ToolCalled(call)]
        if call.name != growing.name or not call.arguments.startswith(self._shown):
            LOG.warning("a call of %s turned out to be another", growing.name)
            return [ToolCalled(call)]
        rest = call.arguments[len(self._shown) :]
        parts: list[Event] = [CallPart(self._id, call.name, rest)] if rest else []
        return [*parts, ToolCalled(replace(call, id=self._id))]

    def give_up(self) -> None:
        """It is no call, or has no end."""
        if self._growing is not None:
            LOG.warning("a call of %s has no end", self._growing.name)
        self._growing = None


_STRING = r'"((?:[^"\\]|\\.)*+)"'
_HEAD = re.compile(
    rf'\s*\[?\s*\{{\s*"name"\s*:\s*{_STRING}\s*,\s*{_STRING}\s*:\s*(?=\{{)', re.DOTALL
)
_KEY = re.compile(rf"[\s,]*{_STRING}\s*:\s*(?=\S)", re.DOTALL)
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_WORD = re.compile(r"[^\s,}\]]+(?=[\s,}\]])")
# Whole signs and escapes; the first half of a pair only if it is known what follows.
_CERTAIN = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}))*+"
)


def watch_json(tools: Tools, text: str, at: int) -> Growing | None:
    """A call as `{"name": NAME, "arguments": {...}}`, or the first of a list of them."""
    head = _HEAD.match(text, at)
    if head is None or head[2] not in ARGUMENT_KEYS:
        return None
    try:
        name = read_json(f'"{head[1]}"')
    except ValueError:
        return None
    return JsonArguments(tools, name, head.end()) if name in tools else None


class JsonArguments:
    """Reads an object that begins at `at`; blanks may stand before it."""

    def __init__(self, tools: Tools, name: str, at: int, id: str = "") -> None:
        self.name = name
        self.id = id
        tool = tools.get(name)
        self._schemas = tool.properties if tool else {}
        self._at = at
        self._seen: set[str] = set()
        self._step = self._start

    def more(self, text: str) -> str:
        """Implements `Growing`."""
        shown = ""
        while (part := self._step(text)) is not None:
            shown += part
        return shown

    # Each state reads on and gives what is certain; None: more text is needed.

    def _start(self, text: str) -> str | None:
        self._at += len(text[self._at :]) - len(text[self._at :].lstrip())
        if self._at == len(text):
            return None
        self._step = self._member if text[self._at] == "{" else self._lost
        self._at += 1
        return "{" if self._step == self._member else None

    def _member(self, text: str) -> str | None:
        key = _KEY.match(text, self._at)
        if key is None:
            return self._closing(text)
        try:
            name = read_json(f'"{key[1]}"')
        except ValueError:
            self._step = self._lost
            return None
        schema, is_new, start = self._schemas.get(name), name not in self._seen, key.end()
        head = f"{', ' if self._seen else ''}{as_json(name)}: " if is_new else ""
        if is_new and text[start] == '"' and keeps_text(schema):
            self._seen.add(name)
            self._at, self._step = start + 1, self._string
            return f'{head}"'
        end = _end_of(text, start)
        if end is None:
            return None
        try:
            value = coerce(read_json(text[start:end]), schema)
        except (ValueError, RecursionError):
            self._step = self._lost
            return None
        self._at = end
        self._seen.add(name)
        return f"{head}{as_json(value)}" if is_new else ""

    def _closing(self, text: str) -> str | None:
        rest = text[self._at :].lstrip()
        if rest.startswith("}"):
            self._step = self._lost
            return "}"
        return None

    def _string(self, text: str) -> str | None:
        found = _CERTAIN.match(text, self._at)
        raw = found.group() if found else ""
        end = self._at + len(raw)
        is_closed = text.startswith('"', end)
        if not raw and not is_closed:
            return None
        self._at = end
        if is_closed:
            self._at, self._step = end + 1, self._member
        return as_json(read_json(f'"{raw}"'))[1:-1] + ('"' if is_closed else "")

    def _lost(self, text: str) -> str | None:
        """Nothing more is certain before the end of the call."""
        return None


def _end_of(text: str, at: int) -> int | None:
    """Where the JSON value at `at` ends; None: not in this text."""
    if text[at] in "{[":
        return value_end(text, at)
    found = (_WHOLE_STRING if text[at] == '"' else _WORD).match(text, at)
    return found.end() if found else None
