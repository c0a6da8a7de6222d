"""Answers on their way from the engine's thread to the event loop, which never waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

import anyio.to_thread
from fastapi import Request

from octavo.chat import Answer, Reply
from octavo.errors import CancelledError, OctavoError
from octavo.server.leaving import unless_gone
from octavo.server.record import Record
from octavo.server.resident import Resident, Served
from octavo.text.split import Event


class Feed:
    """The events of several replies; each holds one of the resident's places until it has ended.

    The engine only says that there is something. It is read on the event loop, by who awaits
    `news`, or, when that one is gone, by the feed itself: to see the end.
    """

    def __init__(self, resident: Resident, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.on_answer: Callable[[Answer], None] = lambda answer: None
        self._resident = resident
        self._running = dict(enumerate(self.replies))
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._is_called = False  # the loop knows that there is something to read
        self._is_cancelled = False
        for reply in self.replies:
            reply.listen(self._call)

    @property
    def answers(self) -> list[Answer]:
        """Whole when the feed is over."""
        return [reply.answer for reply in self.replies]

    @property
    def prompt_tokens(self) -> int:
        """Of the first reply, known from the beginning."""
        return self.replies[0].prompt_tokens

    @property
    def n_generated(self) -> int:
        """Tokens of the first reply, up to the event that was read last."""
        return self.replies[0].n_generated

    @property
    def is_over(self) -> bool:
        """All replies were read to their ends."""
        return not self._running

    def cancel(self) -> None:
        """End the replies that still run, within a step of the engine. Nobody reads them on."""
        self._is_cancelled = True
        for reply in self._running.values():
            reply.cancel()
        self._read_off()

    def answer_now(self) -> bool:
        """End the thinking of all replies; False if none of them thinks."""
        return any([reply.answer_now() for reply in self.replies])

    async def news(self) -> None:
        """Wait until there may be something `ready`."""
        await self._news.wait()

    def ready(self) -> Iterator[tuple[int, Event | Answer]]:
        """(number of the reply, event) of all that has come; the `Answer` is the last of each.

        Raises:
            OctavoError: one of them failed; the others are cancelled.
        """
        self._news.clear()
        self._is_called = False  # before reading: what comes during it is called out again
        try:
            for index in [*self._running]:
                for event in self._read(index):
                    yield index, event
                if index not in self._running:
                    yield index, self._answer(index)
        except OctavoError:
            self.cancel()
            raise

    async def whole(self, request: Request) -> list[Answer]:
        """Wait for all answers.

        Raises:
            OctavoError: one of them failed.
            ClientGoneError: the client left; they are cancelled.
        """
        end = asyncio.ensure_future(self._read_all())
        try:
            await unless_gone(request, end)
        finally:
            self.cancel()
            end.cancel()
            await asyncio.gather(end, return_exceptions=True)
        Record.of(request).add(self.answers)
        return self.answers

    async def _read_all(self) -> None:
        while not self.is_over:
            await self.news()
            for _ in self.ready():
                pass

    def _answer(self, index: int) -> Answer:
        answer = self.replies[index].answer
        if answer.finish_reason == "cancelled":
            raise CancelledError("the server is stopping", "Ask again later.")
        self._resident.tally.reasoning_only += answer.stopped_thinking
        self.on_answer(answer)
        return answer

    def _read(self, index: int) -> Iterator[Event]:
        """What has come of one reply; gives back its place if that is all."""
        reply = self._running[index]
        try:
            yield from reply.ready()
        except Exception as error:
            self._give_back(index)
            if isinstance(error, OctavoError):
                raise
            raise OctavoError(f"the answer failed: {error!r}", "Please report this.") from error
        if reply.is_over:
            self._give_back(index)

    def _give_back(self, index: int) -> None:
        """The place of a reply that has ended."""
        # Until then the engine holds us, to see the end; two that hold each other would stay long.
        self._running.pop(index).listen(_nothing)
        self._resident.release()

    def _call(self) -> None:
        """Something has come: tell the loop, unless it knows. On the engine's thread."""
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        if self._is_cancelled:
            self._read_off()
        else:
            self._news.set()

    def _read_off(self) -> None:
        """Read what nobody wants any more, to see which replies have ended."""
        self._is_called = False
        for index in [*self._running]:
            with contextlib.suppress(OctavoError):
                for _ in self._read(index):
                    pass


def _nothing() -> None:
    """Who has heard all hears no more."""


async def begin(resident: Resident, n: int, ask: Callable[[Served], Sequence[Reply]]) -> Feed:
    """Start `n` answers. What `ask` raises is raised here: nothing has been sent by then.

    Raises:
        OctavoError, RefusedError: they cannot be started.
    """
    session = resident.session
    resident.admit(n)
    try:
        replies = await anyio.to_thread.run_sync(ask, session)
    except BaseException:
        resident.release(n)
        raise
    return Feed(resident, replies)
