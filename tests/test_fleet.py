"""Several models: chosen by name, loaded on demand, given up for each other, never half done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.errors import FileFormatError, MemoryPlanError, OctavoError
from octavo.plan.plan import Plan
from octavo.server.fleet import Fleet
from octavo.server.resident import Resident
from serve_process import serve_process
from serving import END, PLAIN, ScriptedSession, make_plan, serving

QUESTION = [{"role": "user", "content": "Say it."}]


class Source:
    """A model of so many bytes whose answers are its name; loads when `gate` opens."""

    def __init__(self, name: str, n_bytes: int, is_open: bool = True) -> None:
        self.name = name
        self.n_bytes = n_bytes
        self.error: OctavoError | None = None
        self.sessions: list[ScriptedSession] = []
        self.gate = threading.Event()
        if is_open:
            self.gate.set()

    @property
    def resident(self) -> Resident:
        return Resident(self.load, self.name, measure=self.measure)

    def measure(self, report: Any, room_bytes: int | None) -> Plan:
        room = 10_000 if room_bytes is None else room_bytes
        if self.n_bytes > room:
            raise MemoryPlanError(f"{self.n_bytes} bytes do not fit into {room}")
        return make_plan(weight_bytes={"trunk": self.n_bytes}, available_bytes=room)

    def load(self, report: Callable[[str, int, int], None], plan: Plan | None) -> ScriptedSession:
        report("loading", 1, self.n_bytes)
        assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        session = ScriptedSession(PLAIN, *[f"I am {self.name}.{END}"] * 9)
        assert plan is not None
        session.plan = plan
        self.sessions.append(session)
        return session


def make(*sources: Source, max_bytes: int | None = 100) -> Fleet:
    return Fleet([source.resident for source in sources], max_bytes)


def ask(address: str, model: str | None = None, **more: Any) -> httpx.Response:
    body = {"messages": QUESTION} | ({"model": model} if model else {}) | more
    return httpx.post(f"{address}/v1/chat/completions", json=body, timeout=30)


def said(address: str, model: str | None = None) -> str:
    return str(ask(address, model).json()["choices"][0]["message"]["content"])


def states(address: str) -> dict[str, str]:
    entries = httpx.get(f"{address}/v1/models").json()["data"]
    return {entry["id"]: entry["status"]["value"] for entry in entries}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def test_the_request_says_which_model() -> None:
    with serving(make(Source("one", 10), Source("two", 10))) as address:
        assert states(address) == {"one": "loaded", "two": "unloaded"}
        assert said(address) == said(address, "one") == "I am one."
        assert said(address, "two") == "I am two."
        assert ask(address, "two").json()["model"] == "two"
        assert states(address) == {"one": "loaded", "two": "loaded"}
        missing = ask(address, "three")
        assert missing.status_code == 404
        assert "one, two" in missing.json()["error"]["message"]
        body = {"content": "x"}
        for name in ("one", "two"):
            tokens = httpx.post(f"{address}/tokenize", json=body | {"model": name})
            assert tokens.status_code == 200
        props = httpx.get(f"{address}/props", params={"model": "two"}).json()
        assert props["model_alias"] == "two"
        message = httpx.post(f"{address}/v1/messages", json={"messages": QUESTION, "model": "two"})
        assert message.json()["content"][0]["text"] == "I am two."


WRONG: dict[str, Any] = {
    "/v1/chat/completions": {"messages": [{"role": "nobody"}]},
    "/v1/completions": {"prompt": []},
    "/v1/messages": {"messages": QUESTION, "temperature": -1},
    "/v1/responses": {"input": []},
    "/v1/embeddings": {"input": 5},
    "/completion": {"prompt": None},
    "/tokenize": {},
    "/apply-template": {"messages": []},
}


def test_what_is_refused_loads_nothing() -> None:
    with serving(make(Source("one", 10), Source("two", 10))) as address:
        for path, body in WRONG.items():
            answer = httpx.post(address + path, json=body | {"model": "two"}, timeout=30)
            assert answer.status_code == 400, path
        assert states(address) == {"one": "loaded", "two": "unloaded"}


def test_slots_are_those_of_the_model_that_is_named_and_load_none() -> None:
    with serving(make(Source("one", 10), Source("two", 10))) as address:
        erase = f"{address}/slots/0?action=erase&model="
        assert httpx.post(f"{erase}two", json={}).status_code == 503
        assert httpx.post(f"{erase}three", json={}).status_code == 404
        assert states(address) == {"one": "loaded", "two": "unloaded"}


def test_the_only_model_answers_to_every_name() -> None:
    with serving(make(Source("one", 10))) as address:
        assert said(address, "gpt-5") == "I am one."


def test_the_least_recently_used_idle_model_goes() -> None:
    sources = [Source(name, 40) for name in ("one", "two", "three")]
    with serving(make(*sources)) as address:
        for name in ("two", "one", "three"):
            assert said(address, name) == f"I am {name}."
        assert states(address) == {"one": "loaded", "two": "unloaded", "three": "loaded"}
        assert said(address, "two") == "I am two."
        assert states(address) == {"one": "unloaded", "two": "loaded", "three": "loaded"}
    closed = [[s.closed.is_set() for s in source.sessions] for source in sources]
    assert closed == [[True], [True, True], [True]]  # at the end all are


def test_a_busy_model_stays() -> None:
    one, two = Source("one", 60), Source("two", 60)
    with serving(make(one, two)) as address:
        one.sessions[0].hold()
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(said(address, "one")))
        thread.start()
        wait_for(lambda: len(one.sessions[0].streams) == 1)
        refused = ask(address, "two")
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert "do not fit" in refused.json()["error"]["message"]
        assert states(address)["one"] == "loaded"
        busy = httpx.post(f"{address}/v1/models/unload", json={"model": "one"})
        assert (busy.status_code, states(address)["one"]) == (409, "loaded")
        one.sessions[0].gate.release(10**6)
        thread.join(20)
        assert answers == ["I am one."]
        assert said(address, "two") == "I am two."  # now there is room


def test_others_serve_while_one_loads() -> None:
    one, two = Source("one", 10), Source("two", 10, is_open=False)
    with serving(make(one, two)) as address:
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(said(address, "two")))
        thread.start()
        wait_for(lambda: states(address)["two"] == "loading")
        health = httpx.get(f"{address}/health")
        assert health.status_code == 200
        assert health.json()["models"]["two"] == {
            "value": "loading",
            "stage": "loading",
            "done_bytes": 1,
            "total_bytes": 10,
        }
        assert said(address, "one") == "I am one."
        two.gate.set()
        thread.join(20)
        assert answers == ["I am two."]


def test_a_failed_load_leaves_everything_as_it_was() -> None:
    one, two, big = Source("one", 60), Source("two", 60), Source("big", 500)
    with serving(make(one, two, big)) as address:
        for name in ("big", "big"):  # it can never fit: nothing is given up for it
            assert ask(address, name).status_code == 507
            assert len(one.sessions) == 1
        two.error = FileFormatError("two.gguf is damaged")
        failed = ask(address, "two")  # found out when its weights are read: one gave its room
        assert failed.status_code == 500
        assert "damaged" in failed.json()["error"]["message"]
        wait_for(lambda: states(address)["one"] == "loaded")
        assert said(address, "one") == "I am one."
        entry = httpx.get(f"{address}/v1/models/two").json()
        assert entry["status"]["failed"]
        two.error = None
        assert said(address, "two") == "I am two."  # it is tried again


def test_load_and_unload_by_route() -> None:
    with serving(make(Source("one", 10), Source("two", 10))) as address:

        def post(what: str, **body: Any) -> httpx.Response:
            return httpx.post(f"{address}{what}", json=body)

        assert post("/models/load", model="two").json()["success"]
        wait_for(lambda: states(address)["two"] == "loaded")
        assert post("/v1/models/load", model="two", wait=True).status_code == 200
        assert post("/v1/models/unload", model="two").json()["status"] == {"value": "unloaded"}
        assert post("/models/unload", model="two").status_code == 200
        assert post("/v1/models/load", model="two", wait=True).json()["status"]["value"] == "loaded"
        assert post("/v1/models/load", model="three").status_code == 404
        assert post("/v1/models/load").status_code == 400
        assert post("/v1/models/unload", model="one").status_code == 200
        assert httpx.get(f"{address}/health").status_code == 200
        assert said(address, "one") == "I am one."


def test_an_unload_by_force_ends_what_runs() -> None:
    one, two = Source("one", 10), Source("two", 10)
    with serving(make(one, two)) as address:
        one.sessions[0].hold()
        thread = threading.Thread(target=ask, args=(address, "one"))
        thread.start()
        wait_for(lambda: len(one.sessions[0].streams) == 1)
        body = {"model": "one", "force": True}
        assert httpx.post(f"{address}/v1/models/unload", json=body).status_code == 200
        assert one.sessions[0].closed.is_set()
        one.sessions[0].gate.release(10**6)
        thread.join(20)


def test_many_requests_for_one_cold_model_load_it_once() -> None:
    one, two = Source("one", 10), Source("two", 10)
    with serving(make(one, two)) as address:
        threads = [threading.Thread(target=ask, args=(address, "two")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(two.sessions) == 1
        assert len(two.sessions[0].requests) == 8


@pytest.mark.parametrize("limit", [(), ("--max-memory", "14MB")])
def test_a_server_with_a_chat_and_an_embedding_model(
    limit: tuple[str, ...], tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    embedder = tiny_file("qwen2", changes={"pooling_type": 1})
    (tmp_path / "third.gguf").write_bytes(tiny_file("qwen3").read_bytes())
    flags = ("--model", f"embed={embedder}", "--models-dir", str(tmp_path), "--alias", "chat")
    with serve_process(tiny_file("llama"), *flags, "-np", "1", "-c", "512", *limit) as server:
        address = server.address
        assert list(states(address)) == ["chat", "embed", "third"]
        for _ in range(2):
            body = {"model": "embed", "input": ["one", "two"]}
            vectors = httpx.post(f"{address}/v1/embeddings", json=body, timeout=30).json()
            assert len(vectors["data"]) == 2
            assert ask(address, "chat", max_tokens=2).status_code == 200
        assert ask(address, "third", max_tokens=2).json()["model"] == "third"
        held = [state for state in states(address).values() if state == "loaded"]
        assert len(held) == 3 if not limit else len(held) < 3
