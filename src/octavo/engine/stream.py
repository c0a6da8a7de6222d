"""The caller's end of a request: tokens come out, `cancel` goes in.

The engine thread holds only the `Mailbox`; so when the last reference to a `Stream` goes, the
request is cancelled by itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from octavo.errors import OctavoError
from octavo.types import FinishReason, PromptProgress, Token, Usage


class Mailbox:
    """What engine thread and caller share. `post`, `call` and `end` are the engine's alone."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Token | PromptProgress | None] = queue.SimpleQueue()
        self.prompt_tokens: list[Token] = []  # with log-probabilities, if they are wanted
        self.cancelled = threading.Event()
        self.finish: FinishReason | None = None
        self.error: OctavoError | None = None
        self.usage = Usage()
        self.wake: Callable[[], None] | None = None  # see `Stream.listen`
        self._is_new = False

    def post(self, item: Token | PromptProgress) -> None:
        self.events.put(item)
        self._is_new = True

    def end(self, finish: FinishReason, usage: Usage, error: OctavoError | None = None) -> None:
        """Close the stream; a second call does nothing."""
        if self.finish is None:
            self.usage, self.error, self.finish = usage, error, finish
            self.events.put(None)
            self._is_new = True
            self.call()
            self.wake = None

    def call(self) -> None:
        """Wake who listens, if something has come since the last time."""
        if not self._is_new:
            return
        self._is_new = False
        try:
            if (wake := self.wake) is not None:
                wake()
        except Exception:  # the caller's fault must not stop the engine: its request ends
            self.wake = None
            self.cancelled.set()


class Stream(Iterator[Token]):
    """Iterates over the tokens of one request, the stop token not among them.

    Ends when the request has ended; `finish_reason`, `usage` and `stop_id` are final from then
    on. Dropping it, leaving its `with` block or `cancel` ends the request within one step.
    Safe to use from any one thread; `cancel` from all.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._ended = False

    @property
    def finish_reason(self) -> FinishReason | None:
        """None while the request runs; else stop, length, cancelled or error."""
        return self._mailbox.finish

    @property
    def usage(self) -> Usage:
        """Counts and times; all zero until the request has ended."""
        return self._mailbox.usage

    def __next__(self) -> Token:
        """The next token; waits for it.

        Raises:
            OctavoError: the request failed.
        """
        while True:
            item = self._next()
            if isinstance(item, Token):
                return item

    def items(self, *, wait: bool = True) -> Iterator[Token | PromptProgress | None]:
        """Tokens, and before them how far the prompt is, if `report_progress` asked for it.

        Where `wait` is false, None comes when nothing else has come yet: ask again later.

        Raises:
            OctavoError: the request failed.
        """
        try:
            while True:
                is_there = wait or self._ended or not self._mailbox.events.empty()
                yield self._next() if is_there else None
        except StopIteration:
            return

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called now, and on the engine's thread when more has come: it must be quick.

        If it raises there, the request is cancelled.
        """
        self._mailbox.wake = wake
        wake()

    @property
    def prompt_tokens(self) -> list[Token]:
        """The prompt's tokens from the second on, if `prompt_logprobs` asked for them.

        Whole when the first token has come, or the end.
        """
        return self._mailbox.prompt_tokens

    def _next(self) -> Token | PromptProgress:
        if self._ended:
            raise StopIteration
        item = self._mailbox.events.get()
        if item is not None:
            return item
        self._ended = True
        if self._mailbox.error is not None:
            raise self._mailbox.error
        raise StopIteration

    def ids(self) -> list[int]:
        """Wait for the end; the ids that were still to come."""
        return [token.id for token in self]

    def cancel(self) -> None:
        """Ask the engine to end the request; tokens already made can still be read."""
        self._mailbox.cancelled.set()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        self._mailbox.cancelled.set()
