"""Answers on their way to the event loop: threads wait for the engine, the loop for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import anyio.to_thread
from fastapi import Request

from octavo.chat import Answer, Reply
from octavo.errors import CancelledError, OctavoError
from octavo.server.record import Record
from octavo.server.resident import Resident, Served
from octavo.text.split import Event


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Feed:
    """The events of several replies, in the order in which they come.

    Each reply holds one of the resident's places until it has ended.
    """

    def __init__(self, resident: Resident, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self._resident = resident
        self._loop = asyncio.get_running_loop()
        self.n_generated = [0] * len(self.replies)  # tokens, up to the latest event of each
        self.on_answer: Callable[[Answer], None] = lambda answer: None
        self._items: asyncio.Queue[tuple[int, int, Event | OctavoError | None]] = asyncio.Queue()
        for index, reply in enumerate(self.replies):
            name = f"octavo-reply-{index}"
            threading.Thread(target=self._pump, args=(index, reply), name=name, daemon=True).start()

    @property
    def answers(self) -> list[Answer]:
        """Whole when the feed has ended."""
        return [reply.answer for reply in self.replies]

    @property
    def prompt_tokens(self) -> int:
        """Of the first reply, known from the beginning."""
        return self.replies[0].prompt_tokens

    def cancel(self) -> None:
        """End the replies that still run, within a step of the engine."""
        for reply in self.replies:
            reply.cancel()

    def answer_now(self) -> bool:
        """End the thinking of all replies; False if none of them thinks."""
        return any([reply.answer_now() for reply in self.replies])

    async def events(self) -> AsyncIterator[tuple[int, Event | Answer]]:
        """(number of the reply, event); the `Answer` is the last of each.

        Raises:
            OctavoError: one of them failed; the others are cancelled.
        """
        running = len(self.replies)
        while running:
            index, self.n_generated[index], item = await self._items.get()
            if isinstance(item, OctavoError):
                self.cancel()
                raise item
            if item is not None:
                yield index, item
                continue
            running -= 1
            answer = self.replies[index].answer
            if answer.finish_reason == "cancelled":
                raise CancelledError("the server is stopping", "Ask again later.")
            self._resident.tally.reasoning_only += answer.stopped_thinking
            self.on_answer(answer)
            yield index, answer

    async def whole(self, request: Request) -> list[Answer]:
        """Wait for all answers.

        Raises:
            OctavoError: one of them failed.
            ClientGoneError: the client left; they are cancelled.
        """
        drain = asyncio.ensure_future(self._drain())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({drain, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not drain.done():
                Record.of(request).finish = "gone"
                raise ClientGoneError
            drain.result()
        finally:
            self.cancel()
            for task in (drain, gone):
                task.cancel()
            await asyncio.gather(drain, gone, return_exceptions=True)
        Record.of(request).add(self.answers)
        return self.answers

    async def _drain(self) -> None:
        async for _ in self.events():
            pass

    def _pump(self, index: int, reply: Reply) -> None:
        last: OctavoError | None = None
        try:
            for event in reply:
                self._put(index, event)
        except OctavoError as error:
            last = error
        except Exception as error:  # nobody may be left waiting
            last = OctavoError(f"the answer failed: {error!r}", "Please report this.")
        self._resident.release()
        self._put(index, last)

    def _put(self, index: int, item: Event | OctavoError | None) -> None:
        entry = (index, self.replies[index].n_generated, item)
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, entry)
        except RuntimeError:  # the loop is closed: nobody listens
            self.replies[index].cancel()


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


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
