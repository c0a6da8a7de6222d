"""Clients that come and go as they like, and models that fail: nothing may be left running.

A case is one request, streamed or whole. Tokens come in portions, now and then; meanwhile the
client may leave and the server may stop. Who stays gets a whole answer; at the end no place is
held.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from octavo.errors import OctavoError
from octavo.server.fleet import Fleet
from octavo.types import SamplingParams
from serving import END, Gate, ScriptedSession, ScriptedStream

SECONDS = 20.0
_ASKED = [{"role": "user", "content": "q"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": _ASKED, "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": ["a", "b"]},
    "/v1/messages": {"messages": _ASKED, "max_tokens": 50},
    "/v1/responses": {"input": "q"},
    "/completion": {"prompt": "a"},
}
# How a streamed answer ends, by its path.
ENDS: dict[str, tuple[bytes, ...]] = {
    "/v1/chat/completions": (b"data: [DONE]\n\n",),
    "/v1/completions": (b"data: [DONE]\n\n",),
    "/v1/messages": (b'data: {"type":"message_stop"}\n\n', b"event: error"),
    "/v1/responses": (b"event: response.completed", b"event: response.failed"),
    "/completion": (b'"stop":true', b'"error"'),
}
SCRIPTS = (
    f"Some words{END}",
    f"hm, well\n</think>\n\nHi{END}",
    f"hm\n</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>{END}",
    OctavoError("the model failed", "Try again."),
)


class Application(Protocol):
    """What is needed of `fuzz_server.Server`."""

    app: Callable[..., Awaitable[None]]
    fleet: Fleet


class Portions(ScriptedSession):
    """Gives its tokens when the test allows it."""

    def __init__(self, template: str) -> None:
        super().__init__(template, context=4096)
        self._rng = random.Random()

    def begin(self, rng: random.Random) -> None:
        """Get ready for the next request."""
        self.start_anew()
        self._rng = rng
        self.hold()

    def submit(
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> ScriptedStream:
        # One that was stopped may still be asking, on a thread of its own.
        self._scripts = [self._rng.choice(SCRIPTS)]
        return super().submit(ids, params, marks=marks)


class Visit:
    """One request, and what its client does meanwhile."""

    def __init__(self, rng: random.Random, session: Portions, server: Application) -> None:
        self.rng = rng
        self.session = session
        self.server = server
        self.gone = asyncio.Event()
        self.status = 0
        self.body = bytearray()
        self.path = rng.choice(list(BODIES))
        self.is_streamed = rng.random() < 0.8
        wish = {"n": rng.choice((1, 1, 3))} if "completions" in self.path else {}
        whole = {**BODIES[self.path], **wish, "stream": self.is_streamed}
        self._waiting = [{"type": "http.request", "body": json.dumps(whole).encode()}]

    async def receive(self) -> dict[str, Any]:
        if self._waiting:
            return self._waiting.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        for _ in range(self.rng.choice((0, 0, 0, 1, 5))):  # a full socket
            await asyncio.sleep(0)
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")

    async def run(self, scope: dict[str, Any]) -> str:
        """-> how it went.

        Raises:
            AssertionError: something is left running, or the answer is no whole one.
        """
        self.session.begin(self.rng)
        gate, task = self.session.gate, asyncio.ensure_future(self._ask(scope))
        stops = await self._meanwhile(gate, task)
        if not (stops or self.gone.is_set()):
            gate.release(10**6)
        done = await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), SECONDS)
        gate.release(10**6)
        await self._settled()
        if stops:
            return "stopped"
        assert not isinstance(done[0], BaseException), repr(done[0])
        if self.gone.is_set():
            return f"left, {'streamed' if self.is_streamed else 'whole'}"
        return self._checked()

    async def _ask(self, scope: dict[str, Any]) -> None:
        await self.server.app(scope, self.receive, self.send)

    async def _meanwhile(self, gate: Gate, task: asyncio.Task[None]) -> bool:
        """Tokens come, time passes, the client leaves, or the server stops: then True."""
        rng = self.rng
        for _ in range(rng.randint(0, 20)):
            kind = rng.random()
            if kind < 0.4:
                await asyncio.to_thread(gate.release, rng.randint(1, 4))
            elif kind < 0.6:
                await asyncio.sleep(0.0005)
            elif kind < 0.9:
                await asyncio.sleep(0)
            elif kind < 0.97:
                self.gone.set()
                break
            else:
                task.cancel()
                return True
        return False

    async def _settled(self) -> None:
        resident = self.server.fleet.first
        for _ in range(int(SECONDS * 1000)):
            if not resident.n_running:
                break
            await asyncio.sleep(0.001)
        assert not resident.n_running, f"{resident.n_running} places are held"
        assert resident.is_idle, "the model is held"

    def _checked(self) -> str:
        if self.is_streamed:
            assert self.status == 200, bytes(self.body)
            last = bytes(self.body).rstrip().rpartition(b"\n\n")[2] + b"\n\n"
            assert any(end in last for end in ENDS[self.path]), bytes(self.body)
            return "whole stream"
        assert self.status in (200, 500), self.status
        json.loads(self.body)
        return f"whole answer, {self.status}"
