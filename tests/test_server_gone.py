"""A client that leaves: the engine computes at most the step that it is in. Steps are counted.

The model computes a step only when the test allows it, so nothing depends on how fast anything is.
"""

from __future__ import annotations

import gc
import json
import queue
import socket
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from octavo.engine.engine import Engine
from octavo.engine.stream import Mailbox, Stream
from octavo.server.feed import Feed
from octavo.server.routes import openai
from octavo.types import SamplingParams
from scripted_model import ScriptedModel, counting, make_engine
from serving import END, PLAIN, ScriptedSession, serving

PIECE_TOKENS = 16
LONG = [*range(1, 61)] * 3  # 12 steps of a prompt
PATHS = {
    "/v1/completions": lambda ids: {"prompt": ids, "max_tokens": 60},
    "/v1/messages": lambda ids: {"messages": [{"role": "user", "content": "a" * len(ids)}]},
    "/v1/responses": lambda ids: {"input": "a" * len(ids)},
}


class OnEngine(ScriptedSession):
    """A session whose tokens and vectors come of an engine.

    `mailboxes` has what each request for tokens can be cancelled by, `embedding` the same of
    requests for vectors.
    """

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(PLAIN)
        self.real = make_engine(model, max_running=1, piece_tokens=PIECE_TOKENS, prefixes=None)
        self.mailboxes: queue.Queue[Mailbox] = queue.Queue()
        self.embedding: queue.Queue[threading.Event] = queue.Queue()

    @property
    def engine(self) -> Engine:  # type: ignore[override]
        return self.real

    def submit(  # type: ignore[override]
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> Stream:
        stream = self.real.submit(ids, params, marks=marks)
        self.mailboxes.put(stream._mailbox)
        return stream

    def embed(
        self, texts: Any, dimensions: int | None = None, cancelled: threading.Event | None = None
    ) -> np.ndarray:
        assert cancelled is not None
        self.embedding.put(cancelled)
        return self.real.embed(texts, cancelled=cancelled)

    def close(self) -> None:
        self.real.close()


@pytest.fixture
def model() -> ScriptedModel:
    scripted = ScriptedModel(counting, n_vocab=363, pooling="mean")
    scripted.hold()
    return scripted


@pytest.fixture
def session(model: ScriptedModel) -> Iterator[OnEngine]:
    made = OnEngine(model)
    yield made
    model.free()
    made.close()


def ask(address: str, path: str, body: dict[str, Any]) -> socket.socket:
    """Send a request, and leave the answer to come."""
    data = json.dumps(body).encode()
    place = urlsplit(address)
    client = socket.create_connection((place.hostname, place.port), timeout=120)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return client


def settle(session: OnEngine, model: ScriptedModel) -> int:
    """Let the engine do all that it still wants to -> steps in all."""
    model.free()
    session.real.call(lambda: None)  # between two steps: what was cancelled is dropped before
    session.real.call(lambda: None)
    assert session.real.stats.running == session.real.stats.waiting == 0
    return len(model.log)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("n_steps", "where"), [(3, "prompt"), (15, "answer")])
def test_at_most_one_more_step(
    path: str, stream: bool, n_steps: int, where: str, session: OnEngine, model: ScriptedModel
) -> None:
    with serving(session) as address:
        client = ask(address, path, {**PATHS[path](LONG), "stream": stream})
        mailbox = session.mailboxes.get(timeout=120)
        model.allow(n_steps)
        assert (session.real.places.views()[0].n_decoded > 0) is (where == "answer")
        client.close()
        assert mailbox.cancelled.wait(120)
        assert settle(session, model) <= n_steps + 1
        assert mailbox.finish == "cancelled"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", PATHS)
def test_none_for_who_waits(
    path: str, stream: bool, session: OnEngine, model: ScriptedModel
) -> None:
    with serving(session) as address:
        first = ask(address, "/v1/completions", {"prompt": [61] * 5, "max_tokens": 60})
        running = session.mailboxes.get(timeout=120)
        model.allow(2)
        second = ask(address, path, {**PATHS[path](LONG), "stream": stream})
        waiting = session.mailboxes.get(timeout=120)
        second.close()
        assert waiting.cancelled.wait(120)
        first.close()
        assert running.cancelled.wait(120)
        assert settle(session, model) <= 3
        assert waiting.finish == "cancelled"
        computed = {id for ids, _ in model.log for id in ids}
        assert 61 in computed
        assert len(computed) <= 4  # the first's own, and what follows them


@pytest.mark.parametrize("n_steps", [1, 15])
def test_of_vectors_at_most_one_more_step(
    n_steps: int, session: OnEngine, model: ScriptedModel
) -> None:
    """Of five texts with 12 steps each."""
    with serving(session) as address:
        with ask(address, "/v1/embeddings", {"input": [LONG] * 5}):
            cancelled = session.embedding.get(timeout=120)
            model.allow(n_steps)
        assert cancelled.wait(120)
        assert settle(session, model) <= n_steps + 1


def test_vectors_for_who_stays(session: OnEngine, model: ScriptedModel) -> None:
    model.free()
    with serving(session) as address:
        answer = httpx.post(f"{address}/v1/embeddings", json={"input": [[1, 2, 3], [7]]})
    assert [row["embedding"][0] for row in answer.json()["data"]] == [2, 7]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_none_for_a_route_that_fails(
    path: str, session: OnEngine, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody reads the answer: a fault of ours."""

    def fail(*given: Any, **named: Any) -> None:
        raise ValueError

    for name in ("ChatWriter", "TextWriter"):
        monkeypatch.setattr(openai, name, fail)
    body = {"prompt": LONG, "messages": [{"role": "user", "content": "a" * len(LONG)}]}
    with serving(session) as address:
        with ask(address, path, body) as client:
            assert client.recv(100).startswith(b"HTTP/1.1 500")
        mailbox = session.mailboxes.get(timeout=120)
        assert mailbox.cancelled.wait(120)
        assert settle(session, model) <= 1
        assert mailbox.finish == "cancelled"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_over_is_forgotten(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: a search for garbage may be far away, and what belongs to the answer is large."""
    feeds: list[weakref.ref[Feed]] = []
    begin = Feed.__init__

    def noted(self: Feed, *arguments: Any) -> None:
        begin(self, *arguments)
        feeds.append(weakref.ref(self))

    monkeypatch.setattr(Feed, "__init__", noted)
    body = {"messages": [{"role": "user", "content": "?"}], "stream": stream}
    with serving(ScriptedSession(PLAIN, f"Yes.{END}")) as address:
        gc.disable()
        try:
            assert httpx.post(f"{address}/v1/chat/completions", json=body).is_success
            end = time.monotonic() + 10
            while any(feed() is not None for feed in feeds):
                assert time.monotonic() < end
                time.sleep(0.01)
        finally:
            gc.enable()
    assert feeds
