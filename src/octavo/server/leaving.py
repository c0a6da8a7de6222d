"""Work for a client that may leave before it is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from fastapi import Request
from starlette.types import Receive

from octavo.server.record import Record

Result = TypeVar("Result")


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


async def gone(receive: Receive) -> None:
    """Wait until the client has left; its request has been read to the end."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, done: asyncio.Future[Result]) -> Result:
    """Wait for `done`, or until the client leaves; `done` goes on then.

    Raises:
        ClientGoneError: the client left.
    """
    left = asyncio.ensure_future(gone(request.receive))
    both: set[asyncio.Future[Any]] = {done, left}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            Record.of(request).finish = "gone"
            raise ClientGoneError
        return done.result()
    finally:
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)


async def while_here(request: Request, work: Callable[[threading.Event], Result]) -> Result:
    """Run `work` and wait for it. Its event is set when nobody waits for the result any more.

    Raises:
        ClientGoneError: the client left; the work has ended.
    """
    is_gone = threading.Event()
    # Not one of the threads that all requests share: long work would keep them from short one.
    place = anyio.CapacityLimiter(1)
    done = asyncio.ensure_future(anyio.to_thread.run_sync(work, is_gone, limiter=place))
    try:
        return await unless_gone(request, done)
    finally:
        is_gone.set()
        await asyncio.gather(done, return_exceptions=True)
