"""The tokens of an answer, parted into what the reader should see as what.

ids -> text (detokenizer) -> thinking and answer, told apart by tags -> stop strings -> events.
Text is held back only while it may be the beginning of a tag or of a stop string; however the
text is cut into tokens, the events joined together are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from octavo.record import dataclass
from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer
from octavo.types import PromptProgress, ToolCall

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Content:
    """More of the answer."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """More of the thinking."""

    text: str


@dataclass(frozen=True)
class ToolCalled:
    """The model calls a function."""

    call: ToolCall


@dataclass(frozen=True)
class CallPart:
    """More of the arguments of a call that is being written; `ToolCalled` follows when it is whole.

    The parts of one id, joined, are the arguments of the call with that id.
    """

    id: str
    name: str
    text: str


Event = Content | Reasoning | ToolCalled | CallPart | PromptProgress


class ContentParser(Protocol):
    """Finds events in the text of the answer: a tool-call dialect. `tags`: texts it looks for."""

    tags: tuple[str, ...]

    def push(self, text: str) -> list[Event]: ...
    def finish(self) -> list[Event]: ...


class Splitter:
    """One answer: tokens in, events out.

    `reasoning_tags`: the texts around thinking; None if the model does not think. `in_reasoning`:
    the prompt ended with the opening tag. `stop`: texts that end the answer and are not part of
    it; they count in the answer only, not in the thinking. `parser` sees the text of the answer.
    `thought_calls` looks for a call at the end of the thinking.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        reasoning_tags: tuple[str, str] | None = None,
        in_reasoning: bool = False,
        parser: ContentParser | None = None,
        thought_calls: ThoughtCalls | None = None,
    ) -> None:
        tags = (*(reasoning_tags or ()), *(parser.tags if parser else ()))
        shown = {tokenizer.token_id(tag) for tag in tags}
        self._detokenizer = Detokenizer(tokenizer, tokenizer.control_ids - shown)
        self._reasoning = ReasoningSplitter(reasoning_tags, in_reasoning)
        self._stop = StopMatcher(stop)
        self._parser = parser
        self._thought_calls = thought_calls

    @property
    def in_reasoning(self) -> bool:
        """Whether the model is thinking: no answer has begun."""
        return self._reasoning.is_open

    @property
    def stop_text(self) -> str | None:
        """The stop string that ended the answer; nothing after it counts."""
        return self._stop.found

    @property
    def has_thought_call(self) -> bool:
        """Whether the thinking so far ends with a whole call: if it ends here, the call counts."""
        return self._thought_calls is not None and self._thought_calls.is_whole

    def push(self, token: int) -> list[Event]:
        """Events that are certain with this token. None after a stop string.

        Raises:
            RequestError: no such id.
        """
        return self._sort(self._reasoning.push(self._detokenizer.push(token)))

    def finish(self) -> list[Event]:
        """The model has ended: what was held back."""
        last = self._reasoning.push(self._detokenizer.finish()) + self._reasoning.finish()
        events = self._sort(last)
        if rest := self._stop.finish():
            events += self._parse(rest)
        if self._thought_calls:
            events += self._thought_calls.finish()
        return events + (self._parser.finish() if self._parser else [])

    def _sort(self, parts: list[Content | Reasoning]) -> list[Event]:
        events: list[Event] = []
        for part in parts:
            if self._stop.found is not None:
                break
            if isinstance(part, Reasoning):
                thoughts = self._thought_calls
                events += thoughts.push(part.text) if thoughts else [part]
                continue
            if self._thought_calls and part.text.strip():
                events += self._thought_calls.give_up()
            if text := self._stop.push(part.text):
                events += self._parse(text)
        return events

    def _parse(self, text: str) -> list[Event]:
        return self._parser.push(text) if self._parser else [Content(text)]


class ReasoningSplitter:
    """Text -> thinking and answer.

    The opening tag counts only before anything else was said: later it is text. White space next
    to the tags belongs to neither side.
    """

    def __init__(self, tags: tuple[str, str] | None, is_open: bool) -> None:
        self._opening, self._closing = tags or ("", "")
        self._began_open = is_open and tags is not None
        self._state = self._start if tags else self._answer
        self._held = ""
        self._parts: list[Content | Reasoning] = []

    @property
    def is_open(self) -> bool:
        """Whether what comes next is thinking, as far as is known."""
        if self._state == self._start:
            return self._began_open
        return self._state in (self._opened, self._thinking)

    def push(self, text: str) -> list[Content | Reasoning]:
        """The parts that are certain with this text."""
        self._held += text
        while self._held and self._state():
            pass
        return self._take_parts()

    def finish(self) -> list[Content | Reasoning]:
        """What was held back: half a tag is text."""
        if self._state == self._thinking:
            self._emit(Reasoning(self._held.rstrip()))
        elif self.is_open:
            self._emit(Reasoning(self._held.strip()))
        elif self._state != self._closed:
            self._emit(Content(self._held))
        self._held = ""
        return self._take_parts()

    # Each state uses up what it can of the held text and says whether the state changed.

    def _start(self) -> bool:
        seen = self._held.lstrip()
        if len(seen) < len(self._opening) and self._opening.startswith(seen):
            return False
        if seen.startswith(self._opening):
            self._held = seen[len(self._opening) :]
            self._state = self._opened
        elif self._began_open:
            self._state = self._opened
        else:
            self._state = self._answer
        return True

    def _opened(self) -> bool:
        self._held = self._held.lstrip()
        self._state = self._thinking if self._held else self._opened
        return bool(self._held)

    def _thinking(self) -> bool:
        before, tag, after = self._held.partition(self._closing)
        if tag:
            self._emit(Reasoning(before.rstrip()))
            self._held, self._state = after, self._closed
            return True
        certain = self._held[: len(self._held) - overlap(self._held, (self._closing,))].rstrip()
        self._emit(Reasoning(certain))
        self._held = self._held[len(certain) :]
        return False

    def _closed(self) -> bool:
        self._held = self._held.lstrip()
        self._state = self._answer if self._held else self._closed
        return bool(self._held)

    def _answer(self) -> bool:
        self._emit(Content(self._held))
        self._held = ""
        return False

    def _emit(self, part: Content | Reasoning) -> None:
        if part.text:
            self._parts.append(part)

    def _take_parts(self) -> list[Content | Reasoning]:
        parts, self._parts = self._parts, []
        return parts


class ThoughtCalls:
    """Calls that a model writes while it thinks, because it forgot to end the thinking.

    Counts only what begins a line, is whole and sound, and is followed by nothing but the end of
    the answer. A call that is merely mentioned has words after it: it is thinking.

    Args:
        opening: how a call begins.
        make_parser: a fresh parser for the text from there on.
        is_sound: whether a call would be accepted.
    """

    def __init__(
        self,
        opening: str,
        make_parser: Callable[[], ContentParser],
        is_sound: Callable[[ToolCall], bool],
    ) -> None:
        self._opening = opening
        self._make_parser = make_parser
        self._is_sound = is_sound
        self._line = ""  # the thinking since its last line break
        self._held = ""

    @property
    def is_whole(self) -> bool:
        """Whether the held text is nothing but sound calls."""
        return bool(self._calls())

    def push(self, text: str) -> list[Event]:
        """The thinking that is certain to be no call."""
        self._held += text
        thought = ""
        while (n := self._n_certain()) > 0:
            said, self._held = self._held[:n], self._held[n:]
            self._line = said.rpartition("\n")[2] if "\n" in said else self._line + said
            thought += said
        return [Reasoning(thought)] if thought else []

    def give_up(self) -> list[Event]:
        """An answer follows: whatever is held was thinking."""
        text, self._held = self._held, ""
        return [Reasoning(text)] if text.strip() else []

    def finish(self) -> list[Event]:
        """The answer is over: a call that ends it counts."""
        calls = self._calls()
        if not calls:
            return self.give_up()
        LOG.info("a call inside of unclosed thinking was accepted: %s", calls[0].name)
        self._held = ""
        return [ToolCalled(call) for call in calls]

    def _n_certain(self) -> int:
        """How many of the held characters are thinking for sure."""
        at = self._held.find(self._opening)
        if at < 0:
            sure = self._held[: len(self._held) - overlap(self._held, (self._opening,))]
            return len(sure.rstrip())
        starts_line = not (self._line + self._held[:at]).rpartition("\n")[2].strip()
        if not starts_line or self._goes_on(at):
            return at + len(self._opening)
        return len(self._held[:at].rstrip())

    def _goes_on(self, at: int) -> bool:
        """Whether there is more than calls from an opening on."""
        events = self._make_parser().push(self._held[at:])
        return any(isinstance(event, Content) and event.text.strip() for event in events)

    def _calls(self) -> list[ToolCall]:
        text = self._held.lstrip()
        if not text.startswith(self._opening):
            return []
        parser = self._make_parser()
        events = parser.push(text) + parser.finish()
        calls = [event.call for event in events if isinstance(event, ToolCalled)]
        is_all = len(calls) == len(events) and all(self._is_sound(call) for call in calls)
        return calls if is_all else []


class StopMatcher:
    """Finds the stop string that is complete first; of those that end together, the longest."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """The text that is certainly before any stop string."""
        if self.found is not None:
            return ""
        if not self._stop:
            return text
        self._held += text
        ends = [(at + len(s), at, s) for s in self._stop if (at := self._held.find(s)) >= 0]
        if ends:
            _, at, self.found = min(ends)
            return self._held[:at]
        certain = len(self._held) - overlap(self._held, self._stop)
        text, self._held = self._held[:certain], self._held[certain:]
        return text

    def finish(self) -> str:
        """What was held back, if no stop string was found."""
        return "" if self.found is not None else self._held


def overlap(text: str, targets: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins, but does not complete, a target."""
    longest = max((len(t) - 1 for t in targets), default=0)
    for length in range(min(longest, len(text)), 0, -1):
        if any(t.startswith(text[-length:]) for t in targets if len(t) > length):
            return length
    return 0
