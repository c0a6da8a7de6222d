"""Nonsense, a little of each kind; `fuzz_server.py` does a million. And what it found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fuzz_json import MESSAGES, SEEDS
from fuzz_server import KINDS, Answered, Server, run, scope_of
from octavo.server.encoding import encode
from octavo.server.guard import Rules

CASES = {
    "requests": 150,
    "bodies": 3000,
    "headers": 200,
    "leaving": 100,
    "streams": 100,
    "templates": 150,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_documented_errors(kind: str) -> None:
    found = run(kind, CASES[kind])
    assert not found.findings, "\n".join(found.findings)
    assert found.cases == CASES[kind]
    assert len(found.outcomes) > 1


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(Rules())
    yield made
    made.close()


def ask(server: Server, path: str, body: Any, headers: Any = ()) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answered: Answered = server.ask(scope_of(path, headers=headers), data)
    error = json.loads(answered.body).get("error", {}) if answered.status != 200 else {}
    return answered.status, error.get("message", "")


def test_sound_bodies_are_served(server: Server) -> None:
    """Else nothing would be tested behind the door."""
    alone = {"/infill": 400, "/v1/requests/req_1/answer-now": 404}
    for path, bodies in SEEDS.items():
        for body in bodies:
            status, message = ask(server, path, body)
            assert status == alone.get(path, 200), (path, message)


CHAT = {"messages": MESSAGES}
ASKED = {"messages": [{"role": "user", "content": "q"}]}
ODD_TOOL = {"type": "function", "function": {"name": "f\ud800", "parameters": {}}}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/messages", {**ASKED, "output_config": {"format": "json"}}, "no object"),
    ("/v1/messages", {**ASKED, "tool_choice": {"type": []}}, "tool_choice"),
    ("/v1/chat/completions", {**CHAT, "text": {"format": [1]}}, "no object"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "assistant", "tool_calls": 5}]},
        "tool_calls is no list",
    ),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [1]}]}, "has no text"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "reads text only",
    ),
    ("/v1/chat/completions", {**ASKED, "tools": [ODD_TOOL]}, "surrogate"),
]


@pytest.mark.parametrize(("path", "body", "said"), WRONG)
def test_wrong_types_are_named(path: str, body: Any, said: str, server: Server) -> None:
    status, message = ask(server, path, body)
    assert status == 400
    assert said in message


LENIENT: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"input": [{"type": "reasoning", "content": 5}, {"role": "user"}]}),
    (
        "/v1/responses",
        {
            "input": "q",
            "tools": [{"type": [], "name": []}],
            "tool_choice": {"type": "allowed_tools", "tools": [{"name": {}}, {"type": []}]},
        },
    ),
    ("/v1/responses", {"input": "q", "tool_choice": {"type": "allowed_tools", "tools": True}}),
    ("/v1/responses", {"input": "q", "tools": [{"type": "namespace", "name": "n", "tools": 5}]}),
    ("/v1/responses", {"input": [{"type": "additional_tools", "tools": 5}, {"role": "user"}]}),
    (
        "/v1/chat/completions",
        {
            **CHAT,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"properties": {}, "required": [{}]}},
                }
            ],
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), LENIENT)
def test_what_has_no_meaning_is_no_fault_of_ours(path: str, body: Any, server: Server) -> None:
    assert ask(server, path, body)[0] in (200, 400)


def test_lengths_that_are_none(server: Server) -> None:
    for length in (b"x", b"-1", b"1e3", b"1_0", "²".encode()):
        status, message = ask(server, "/tokenize", {}, [(b"content-length", length)])
        assert status == 400
        assert "content length" in message
    assert ask(server, "/tokenize", {}, [(b"content-length", b"9" * 5000)])[0] == 413


def test_what_is_repeated_is_json_again(server: Server) -> None:
    body = b'{"input": "q", "metadata": {"a": 1e999, "b": NaN, "c": "\\ud800", "d": [-1e999, 1]}}'
    answered = server.ask(scope_of("/v1/responses"), body)
    found = json.loads(answered.body)["metadata"]
    assert found == {"a": None, "b": None, "c": "?", "d": [None, 1]}
    status, message = ask(server, "/v1/models/load", {"model": "\ud800"})
    assert (status, message) == (200, "")


def test_encoding_replaces_only_what_has_no_form() -> None:
    assert encode({"a": [1, 0.5, "é\n", None, True]}) == '{"a":[1,0.5,"é\\n",null,true]}'.encode()
    assert encode({"a": (float("nan"), 1.5), "b": {"c": float("-inf")}}) == (
        b'{"a":[null,1.5],"b":{"c":null}}'
    )


def test_bytes_that_are_no_text(server: Server) -> None:
    status, message = ask(server, "/v1/messages", b'{"messages": "\xff"}')
    assert status == 400
    assert "no UTF-8" in message


@pytest.mark.parametrize(("depth", "refused"), [(400, ""), (3000, "flatter"), (100_000, "flatter")])
def test_bodies_nested_deeply(depth: int, refused: str, server: Server) -> None:
    deep = b"[" * depth + b"]" * depth
    body = b'{"model": "m", "input": "q", "metadata": {"a": ' + deep + b"}}"
    answered = server.ask(scope_of("/v1/responses"), body)
    assert answered.status == (400 if refused else 200)
    assert refused in answered.body.decode()
