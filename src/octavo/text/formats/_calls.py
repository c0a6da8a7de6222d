"""The parser that the dialects share: finds openings in the answer, asks the dialect to read.

A dialect's reader sees the text from an opening on and decides: a call, no call, or that more
text is needed. A decision that was made stays the same whatever follows, so it does not matter
how the answer is cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from octavo.record import dataclass
from octavo.text.formats._parts import Growing, Showing
from octavo.text.split import Content, Event, overlap
from octavo.types import ToolCall

_PATIENCE_CHARS = 256  # of a call; from there on it is looked at again only after a closing sign


class Verdict(Enum):
    """WAIT: more text is needed. TEXT: no call begins here."""

    WAIT = 0
    TEXT = 1


@dataclass(frozen=True)
class Found:
    """Calls, and where in the text they end."""

    calls: tuple[ToolCall, ...]
    end: int


@dataclass(frozen=True)
class Place:
    """Where an opening stands: `starts_line`, and whether only blanks were said before it."""

    starts_line: bool
    is_first: bool


Reader = Callable[[str, int, Place, bool], Found | Verdict]


class CallParser:
    """A `ContentParser` for calls between tags.

    Args:
        openings: texts at which `read(text, at, place, is_end)` is asked.
        strays: closing tags that are skipped behind a call.
        tags: control tokens that must reach the parser as text.
        watch: finds the call that is being written, to show it in parts; None: only whole ones.
    """

    def __init__(
        self,
        read: Reader,
        openings: tuple[str, ...],
        strays: tuple[str, ...] = (),
        tags: tuple[str, ...] = (),
        watch: Callable[[str, int], Growing | None] | None = None,
    ) -> None:
        self.tags = (*openings, *strays, *tags)
        self._read = read
        self._openings = openings
        self._strays = strays
        self._held = ""
        self._line = ""  # what was said since the last line break
        self._is_first = True
        self._after_call = False
        self._watch = watch
        self._showing = Showing()
        self._n_seen = 0  # of the held text: looked at before, in vain

    def push(self, text: str) -> list[Event]:
        """Events that are certain with this text."""
        self._held += text
        if self._n_seen > _PATIENCE_CHARS and not set(text) & set(">}])"):
            return self._showing.more(self._held)
        return self._drain(is_end=False)

    def finish(self) -> list[Event]:
        """What was held back: calls that lack their end, or text."""
        return self._drain(is_end=True)

    def _drain(self, is_end: bool) -> list[Event]:
        events: list[Event] = []
        self._n_seen = 0
        while self._held and (not self._after_call or self._skip_strays(is_end)):
            at = min((i for o in self._openings if (i := self._held.find(o)) >= 0), default=-1)
            if at < 0:
                self._say(events, self._n_certain(is_end))
                break
            found = self._read(self._held, at, self._place(at), is_end)
            if found is Verdict.TEXT and self._showing.is_on and is_end:
                self._showing.give_up()
                self._held = ""  # it was seen as a call, and stays one that has no end
            elif found is Verdict.TEXT:
                self._showing.give_up()
                self._say(events, at + 1)
            elif isinstance(found, Found):
                self._say(events, len(self._held[:at].rstrip()))
                for call in found.calls:
                    events += self._showing.end(call)
                self._held = self._held[found.end - self._n_said :]
                self._after_call, self._line = True, ""
            else:
                self._say(events, len(self._held[:at].rstrip()))
                self._n_seen = len(self._held)
                events += self._show(at - self._n_said)
                break
        return events

    def _show(self, at: int) -> list[Event]:
        """The part of the call at `at` that became certain."""
        if self._watch and not self._showing.is_on and (found := self._watch(self._held, at)):
            self._showing.begin(found)
        return self._showing.more(self._held)

    def _say(self, events: list[Event], n: int) -> None:
        """The first n held characters are content."""
        text, self._held = self._held[:n], self._held[n:]
        self._n_said = n
        if not text:
            return
        self._is_first = self._is_first and not text.strip()
        self._line = text.rpartition("\n")[2] if "\n" in text else self._line + text
        if events and isinstance(last := events[-1], Content):
            events[-1] = Content(last.text + text)
        else:
            events.append(Content(text))

    def _place(self, at: int) -> Place:
        before = self._line + self._held[:at]
        starts_line = not before.rpartition("\n")[2].strip()
        return Place(starts_line, self._is_first and not before.strip())

    def _n_certain(self, is_end: bool) -> int:
        """How much is content for sure: blanks before a call are not."""
        if is_end:
            return len(self._held)
        sure = self._held[: len(self._held) - overlap(self._held, self._openings)]
        return len(sure.rstrip())

    def _skip_strays(self, is_end: bool) -> bool:
        """Take blanks and stray tags away behind a call; False: it is not clear yet."""
        while True:
            self._held = self._held.lstrip()
            stray = next((s for s in self._strays if self._held.startswith(s)), None)
            if stray is None:
                break
            self._held = self._held[len(stray) :]
        if not is_end and any(s.startswith(self._held) for s in self._strays):
            return False
        self._after_call = not self._held
        return bool(self._held)


def closed(text: str, at: int, tag: str, is_end: bool) -> int | None:
    """End of the closing tag at `at`, blanks before it skipped; `at` if there is none.

    None: it may still come.
    """
    start = at + len(text[at:]) - len(text[at:].lstrip())
    if text.startswith(tag, start):
        return start + len(tag)
    if not is_end and tag.startswith(text[start:]):
        return None
    return at
