"""Server-sent events: a stream that stays alive, and that ends when the client is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.encoding import encode
from octavo.server.leaving import gone

PING_SECONDS = 10.0
COMMENT_PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


def event(value: Any, name: str = "") -> bytes:
    """One event; with a name, a line that says it."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(value) + b"\n\n"


def typed(*events: tuple[str, Mapping[str, Any]]) -> bytes:
    """Events by their names, which their data has as `type` too."""
    return b"".join(event({"type": name, **data}, name) for name, data in events)


class EventStream(Response):
    """Sends `events` as they come, and `ping` when nothing came for a while.

    `on_end` is called once, however it ends: all sent, client gone, or server stopping.
    `on_gone` is called before it if the client left early.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        *,
        on_end: Callable[[], None],
        on_gone: Callable[[], None],
        ping: bytes = COMMENT_PING,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self.status_code = 200
        self.background = None
        # A proxy that buffers would undo the stream.
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._events = events
        self._on_end = on_end
        self._on_gone = on_gone
        self._ping = ping
        self._ping_seconds = ping_seconds
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        sender = asyncio.ensure_future(self._send_all(send, start))
        others = [asyncio.ensure_future(t) for t in (gone(receive), self._keep_alive(send))]
        try:
            await asyncio.wait({sender, *others}, return_when=asyncio.FIRST_COMPLETED)
            if not sender.done():
                self._on_gone()
        finally:
            self._on_end()
            for task in (sender, *others):
                task.cancel()
            await asyncio.gather(sender, *others, return_exceptions=True)
        if not sender.cancelled():
            sender.result()

    async def _send_all(self, send: Send, start: dict[str, Any]) -> None:
        await send(start)
        async for data in self._events:
            self._sent_at = time.monotonic()
            await send({"type": "http.response.body", "body": data, "more_body": True})
        self._sent_at = time.monotonic()
        await send({"type": "http.response.body", "body": b""})

    async def _keep_alive(self, send: Send) -> None:
        """Pings for ever. A client that is gone shows here too, as an error of `send`."""
        self._sent_at = time.monotonic()
        while True:
            await asyncio.sleep(max(0.01, self._sent_at + self._ping_seconds - time.monotonic()))
            if time.monotonic() - self._sent_at >= self._ping_seconds:
                self._sent_at = time.monotonic()
                await send({"type": "http.response.body", "body": self._ping, "more_body": True})
