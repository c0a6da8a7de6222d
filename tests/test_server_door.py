"""Who may come in and when: keys, hosts, sizes, the queue, loading, leaving and stopping."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from octavo.cli import app
from octavo.errors import CancelledError, SettingError, UnsupportedError
from octavo.server.guard import Rules, check_address
from octavo.server.sse import EventStream
from serving import END, PLAIN, THINKER, ScriptedSession, serving

QUESTION = [{"role": "user", "content": "Say it."}]
CHAT = {"messages": QUESTION}
PATHS = ("/v1/chat/completions", "/v1/messages", "/completion")
BODIES: dict[str, Any] = {path: CHAT | {"prompt": "Say it.", "max_tokens": 99} for path in PATHS}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def test_keys() -> None:
    rules = Rules(keys=("one", "ключ"))
    with serving(ScriptedSession(PLAIN, f"a{END}", f"b{END}"), rules) as address:
        url = f"{address}/v1/messages"
        assert httpx.get(f"{address}/health").status_code == 200
        for headers in ({}, {"x-api-key": "on"}, {"authorization": "Bearer two"}):
            refused = httpx.post(url, json=CHAT, headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["type"] == "authentication_error"
        for given in ({"x-api-key": "one"}, {"authorization": "bearer one"}):
            assert httpx.post(url, json=CHAT, headers=given).status_code == 200


def test_hosts_are_checked_where_there_is_no_key() -> None:
    """M6: a page whose name points to this computer is found out by that name."""
    with serving(ScriptedSession(PLAIN), Rules(hosts=("my-pc",))) as address:
        for host in ("localhost:80", "127.0.0.1", "[::1]:8080", "my-pc:1", "192.168.1.5"):
            assert httpx.get(f"{address}/health", headers={"host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example:80", "my-pc.evil.example"):
            assert httpx.get(f"{address}/health", headers={"host": host}).status_code == 403


def test_bodies_that_foreign_pages_could_send() -> None:
    with serving(ScriptedSession(PLAIN)) as address:
        url = f"{address}/v1/chat/completions"
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            refused = httpx.post(url, content=json.dumps(CHAT), headers={"content-type": kind})
            assert refused.status_code == 415
        asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        preflight = httpx.options(url, headers=asked)
        assert "access-control-allow-origin" not in preflight.headers


def test_allowed_origins() -> None:
    rules = Rules(keys=("k",), origins=("http://page.example",))
    with serving(ScriptedSession(PLAIN), rules) as address:
        asked = {"origin": "http://page.example", "access-control-request-method": "POST"}
        preflight = httpx.options(f"{address}/v1/models", headers=asked)
        assert preflight.headers["access-control-allow-origin"] == "http://page.example"
        # A page has to be able to read why it was refused, too.
        refused = httpx.get(f"{address}/v1/models", headers={"origin": "http://page.example"})
        assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (
            401,
            True,
        )


def test_bodies_too_large_or_broken() -> None:
    with serving(ScriptedSession(PLAIN), Rules(max_body_bytes=1 << 20)) as address:
        url, kind = f"{address}/v1/messages", {"content-type": "application/json"}

        def pieces() -> Any:
            for _ in range(3):
                yield b"[" * (1 << 19)

        for content in (b"[" * (2 << 20), pieces()):
            large = httpx.post(url, content=content, headers=kind)
            assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
        for broken in (b"", b"{", b'{"messages": ', b"[" * 10**5, b"9" * 10**4, b"\xff\xfe", b"1"):
            refused = httpx.post(url, content=broken, headers=kind)
            assert (refused.status_code, refused.json()["type"]) == (400, "error")


def test_a_body_that_does_not_arrive() -> None:
    with serving(ScriptedSession(PLAIN), Rules(body_seconds=0.05)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            head = (
                "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
            connection.sendall(head.encode())
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408")


def test_unknown_paths_are_cheap_and_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "octavo.server")
    with serving(ScriptedSession(PLAIN)) as address:
        answer = httpx.post(f"{address}/api/event_logging/batch", json={})
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found_error"
        wrong = httpx.get(f"{address}/v1/chat/completions")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert "GET; use POST" in wrong.json()["error"]["message"]
    lines = [r for r in caplog.records if r.name == "octavo.server"]
    assert {line.levelno for line in lines} == {logging.INFO}


def test_head_is_get_without_a_body() -> None:
    """Claude Code and load balancers ask so whether anyone is there."""
    with serving(ScriptedSession(PLAIN)) as address:
        for path, status in (("/", 200), ("/health", 200), ("/v1/models", 200), ("/nowhere", 404)):
            head = httpx.head(address + path)
            assert (head.status_code, head.content) == (status, b""), path
            assert (
                head.headers["content-length"]
                == httpx.get(address + path).headers["content-length"]
            )
        assert httpx.head(f"{address}/v1/messages").status_code == 405


def test_log_line_says_figures_and_no_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    session = ScriptedSession(THINKER, f"pondering\n</think>\n\nsecretive{END}")
    with serving(session) as address:
        body = {"messages": [{"role": "user", "content": "confidential"}], "stream": True}
        answer = httpx.post(f"{address}/v1/chat/completions", json=body)
        wait_for(lambda: any(r.name == "octavo.server" for r in caplog.records))
    (record,) = (r for r in caplog.records if r.name == "octavo.server")
    line = json.loads(record.getMessage())
    assert line["id"] == answer.headers["x-request-id"]
    assert (line["status"], line["finish"], line["cached_tokens"]) == (200, "stop", 3)
    assert line["completion_tokens"] == session.streams[0].n_read
    everything = " ".join(r.getMessage() for r in caplog.records)
    assert not [word for word in ("confidential", "pondering", "secretive") if word in everything]


def test_listens_before_the_model_is_there() -> None:
    go_on, session = threading.Event(), ScriptedSession(PLAIN, f"Hi{END}")

    def load(report: Callable[[str, int, int], None]) -> ScriptedSession:
        report("loading", 3, 12)
        assert go_on.wait(20)
        return session

    with serving(load, waits=False) as address:
        wait_for(lambda: httpx.get(f"{address}/health").json().get("total_bytes") == 12)
        health = httpx.get(f"{address}/health")
        assert health.status_code == 503
        assert int(health.headers["retry-after"]) > 0
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        assert health.json()["error"] == error
        assert health.json()["done_bytes"] == 3
        for path in PATHS:
            answer = httpx.post(address + path, json=BODIES[path])
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        (entry,) = httpx.get(f"{address}/v1/models").json()["data"]
        assert entry["status"]["value"] == "loading"
        assert "octavo_model_ready 0" in httpx.get(f"{address}/metrics").text
        go_on.set()
        wait_for(lambda: httpx.get(f"{address}/health").status_code == 200)
        assert httpx.post(f"{address}/v1/messages", json=CHAT).status_code == 200
    assert session.closed.wait(20)


def test_a_model_that_cannot_be_loaded() -> None:
    def load(report: object) -> ScriptedSession:
        raise UnsupportedError("no such architecture")

    with serving(load) as address:
        answer = httpx.get(f"{address}/health")
    assert answer.status_code == 500
    assert "no such architecture" in answer.json()["error"]["message"]


def send(address: str, path: str, stream: bool) -> socket.socket:
    """A request whose connection is in the test's hands."""
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps(BODIES[path] | {"stream": stream}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_leaves_ends_its_request(path: str, stream: bool) -> None:
    session = ScriptedSession(PLAIN, "word " * 100, f"Hi{END}")
    session.hold()
    with serving(session) as address:
        connection = send(address, path, stream)
        wait_for(lambda: len(session.streams) == 1)
        connection.close()
        assert session.streams[0].cancelled.wait(20)
        session.gate.release(1000)
        wait_for(lambda: "octavo_requests_admitted 0" in httpx.get(f"{address}/metrics").text)
        assert httpx.post(address + path, json=BODIES[path]).status_code == 200
    assert session.streams[0].n_read <= 1  # the step at hand


@pytest.mark.parametrize(
    ("path", "first"),
    [(PATHS[0], b"assistant"), (PATHS[1], b"message_start"), (PATHS[2], b": ping")],
)
def test_the_first_event_does_not_wait_for_the_prompt(
    path: str, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for the time after which pings come: here they never do."""
    kept = {**(EventStream.__init__.__kwdefaults__ or {}), "ping_seconds": 3600.0}
    monkeypatch.setattr(EventStream.__init__, "__kwdefaults__", kept)
    session = ScriptedSession(PLAIN, f"Hi{END}")
    session.hold()
    with serving(session) as address, send(address, path, stream=True) as connection:
        seen = b""
        while first not in seen:
            data = connection.recv(1 << 16)
            assert data, seen
            seen += data
        assert seen.startswith(b"HTTP/1.1 200")
        session.gate.release(1000)


def test_full_queue() -> None:
    session = ScriptedSession(PLAIN, *[f"Hi{END}"] * 3)
    session.hold()
    with serving(session, max_waiting=1) as address:
        open_connections = [send(address, PATHS[0], stream=False) for _ in range(3)]
        wait_for(lambda: len(session.streams) == 3)
        refused = httpx.post(address + PATHS[0], json=CHAT)
        several = httpx.post(address + PATHS[1], json=BODIES[PATHS[1]])
        session.gate.release(1000)
        for connection in open_connections:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
            connection.close()
        counted = httpx.get(f"{address}/metrics").text
    assert (refused.status_code, several.status_code) == (429, 429)
    assert refused.json()["error"]["type"] == several.json()["error"]["type"] == "rate_limit_error"
    assert int(refused.headers["retry-after"]) > 0
    assert "octavo_requests_refused_total 2" in counted


def test_stopping_ends_what_runs_and_closes_the_model() -> None:
    session = ScriptedSession(PLAIN, "word " * 100)
    session.hold()
    with serving(session) as address:
        connection = send(address, PATHS[0], stream=True)
        wait_for(lambda: len(session.streams) == 1)
    assert session.streams[0].cancelled.is_set()
    assert session.closed.is_set()
    connection.close()


def test_what_ended_with_its_model_may_be_asked_again() -> None:
    """A server that stops, or a model that is given up by force, under a request."""
    session = ScriptedSession(PLAIN, *[CancelledError("the model is given up")] * 3)
    kinds = ("unavailable_error", "overloaded_error", "unavailable_error")
    with serving(session) as address:
        for path, kind in zip(PATHS, kinds, strict=True):
            answer = httpx.post(address + path, json=BODIES[path])
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert answer.json()["error"]["type"] == kind


def test_pings_come_while_nothing_else_does() -> None:
    async def events(go_on: asyncio.Event) -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await go_on.wait()
        yield b"data: 2\n\n"

    async def run() -> list[bytes]:
        go_on, ends, sent = asyncio.Event(), [], []
        stream = EventStream(
            events(go_on),
            on_end=lambda: ends.append("end"),
            on_gone=lambda: ends.append("gone"),
            ping=b": ping\n\n",
            ping_seconds=0.001,
        )

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if sent.count(b": ping\n\n") == 3:
                go_on.set()

        async def receive() -> Any:
            await asyncio.sleep(3600)

        await stream({"type": "http"}, receive, send)
        assert ends == ["end"]
        return sent

    sent = asyncio.run(run())
    assert sent[1] == b"data: 1\n\n"
    assert sent.count(b": ping\n\n") >= 3
    assert sent[-2:] == [b"data: 2\n\n", b""]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_key(host: str) -> None:
    check_address(host, ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "my-pc", ""])
def test_other_addresses_need_one(host: str) -> None:
    with pytest.raises(SettingError, match="no key"):
        check_address(host, ("",))
    check_address(host, ("key",))


def test_command_refuses_to_be_open() -> None:
    """M10: to other computers only with a key."""
    done = CliRunner().invoke(app, ["serve", "absent.gguf", "--host", "0.0.0.0"])
    assert done.exit_code == 2
    assert "OCTAVO_API_KEY" in done.output


def test_command_says_that_the_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", port])
    assert done.exit_code == 2
    assert "cannot listen" in done.output


def test_command_ends_when_the_model_cannot_be_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    done = CliRunner().invoke(app, ["serve", str(broken), "--port", "0"])
    assert done.exit_code == 3


def test_command_reads_keys_from_a_file(tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n \n")
    for path, code in ((empty, 2), (tmp_path / "absent", 4)):
        done = CliRunner().invoke(app, ["serve", "absent.gguf", "--api-key-file", str(path)])
        assert done.exit_code == code
