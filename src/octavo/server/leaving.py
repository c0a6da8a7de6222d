"""Work on a thread, for a client that may leave before it is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from fastapi import Request

from octavo.server.feed import ClientGoneError
from octavo.server.record import Record

Result = TypeVar("Result")


async def while_here(request: Request, work: Callable[[threading.Event], Result]) -> Result:
    """Run `work` and wait for it. Its event is set when nobody waits for the result any more.

    Raises:
        ClientGoneError: the client left; the work has ended.
    """
    is_gone = threading.Event()
    # Not one of the threads that all requests share: long work would keep them from short one.
    place = anyio.CapacityLimiter(1)
    done = asyncio.ensure_future(anyio.to_thread.run_sync(work, is_gone, limiter=place))
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({done, left}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            Record.of(request).finish = "gone"
            raise ClientGoneError
        return done.result()
    finally:
        is_gone.set()
        left.cancel()
        await asyncio.gather(done, left, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
