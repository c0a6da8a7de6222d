"""What strict clients rely on besides the words of an answer: every key, every header, no waiting.

Typed clients read the whole objects; agents send fields and blocks that nobody documented.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import octavo
from serving import END, PLAIN, THINKER, ScriptedSession, serving
from tiny_vocabulary import CHATML

QUESTION: Any = [{"role": "user", "content": "Say it."}]
CHAT = {"messages": QUESTION, "max_tokens": 99}
INT, TEXT, NUMBER = (int,), (str,), (int, float)

TIMINGS = {
    "cache_n": INT,
    "prompt_n": INT,
    "prompt_ms": NUMBER,
    "prompt_per_second": NUMBER,
    "predicted_n": INT,
    "predicted_ms": NUMBER,
    "predicted_per_second": NUMBER,
}
USAGE = {
    "prompt_tokens": INT,
    "completion_tokens": INT,
    "total_tokens": INT,
    "prompt_tokens_details": {"cached_tokens": INT},
    "completion_tokens_details": {"reasoning_tokens": INT},
}
COMPLETION = {
    "id": TEXT,
    "object": "chat.completion",
    "created": INT,
    "model": TEXT,
    "choices": [
        {
            "index": INT,
            "message": {"role": "assistant", "content": TEXT, "reasoning_content": TEXT},
            "finish_reason": "stop",
            "logprobs": (type(None),),
        }
    ],
    "usage": USAGE,
    "timings": TIMINGS,
}
CLAUDE = {
    "id": TEXT,
    "type": "message",
    "role": "assistant",
    "model": TEXT,
    "content": [
        {"type": "thinking", "thinking": TEXT, "signature": TEXT},
        {"type": "text", "text": TEXT},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": (type(None),),
    "usage": {
        "input_tokens": INT,
        "output_tokens": INT,
        "cache_read_input_tokens": INT,
        "cache_creation_input_tokens": INT,
    },
}
MODELS = {
    "object": "list",
    "data": [
        {
            "id": TEXT,
            "object": "model",
            "created": INT,
            "owned_by": TEXT,
            "type": "model",
            "display_name": TEXT,
            "created_at": TEXT,
            "status": {"value": "loaded"},
            "architecture": {"input_modalities": [TEXT]},
            "meta": {"n_ctx": INT, "n_ctx_train": INT},
        }
    ],
}
PROPS = {
    "default_generation_settings": {"n_ctx": INT},
    "total_slots": INT,
    "model_path": TEXT,
    "chat_template": TEXT,
    "chat_template_caps": {"supports_tools": (bool,)},
    "modalities": {"vision": (bool,), "audio": (bool,)},
    "build_info": TEXT,
    "is_sleeping": (bool,),
}
SLOT = {"id": INT, "n_ctx": INT, "is_processing": (bool,), "next_token": {"n_decoded": INT}}


def check(found: Any, shape: Any, place: str = "") -> None:
    """Every key of the shape is there, with a value of its type."""
    if isinstance(shape, dict):
        for key, inner in shape.items():
            assert key in found, f"{place}.{key} is missing"
            check(found[key], inner, f"{place}.{key}")
    elif isinstance(shape, list):
        assert len(found) >= len(shape), place
        for number, inner in enumerate(shape):
            check(found[number], inner, f"{place}[{number}]")
    elif isinstance(shape, str):
        assert found == shape, place
    else:
        assert type(found) in shape, f"{place} is {found!r}"


@pytest.mark.parametrize(
    ("path", "body", "shape"),
    [
        ("/v1/chat/completions", CHAT, COMPLETION),
        ("/v1/messages", CHAT, CLAUDE),
        ("/v1/models", None, MODELS),
        ("/props", None, PROPS),
        ("/slots", None, [SLOT, SLOT]),
    ],
)
def test_every_key_is_there(path: str, body: Any, shape: Any) -> None:
    with serving(ScriptedSession(THINKER, f"Hm.\n</think>\n\nHello.{END}")) as address:
        method = "GET" if body is None else "POST"
        answer = httpx.request(method, address + path, json=body).raise_for_status()
        check(answer.json(), shape)
        assert answer.headers["x-request-id"] == answer.headers["request-id"] != ""


def test_figures_come_in_streams_too() -> None:
    """With the counts, if these are asked for; else with the last chunk."""
    options = ({}, {"stream_options": {"include_usage": True}})
    with serving(ScriptedSession(PLAIN, *[f"Hello.{END}"] * 2)) as address:
        for option in options:
            body = CHAT | {"stream": True} | option
            text = httpx.post(f"{address}/v1/chat/completions", json=body).text
            (*_, last, done, end) = text.split("\n\n")
            assert (done, end) == ("data: [DONE]", "")
            with_usage = {"usage": USAGE} if option else {}
            check(json.loads(last.removeprefix("data: ")), {"timings": TIMINGS, **with_usage})


def test_the_context_of_a_model_and_of_this_run(tiny_file: Callable[..., Path]) -> None:
    with serving(octavo.load(tiny_file("llama"), context=128)) as address:
        meta = httpx.get(f"{address}/v1/models").json()["data"][0]["meta"]
    assert (meta["n_ctx"], meta["n_ctx_train"]) == (128, 512)


NEW_FIELDS = {
    "metadata": {"user_id": "u"},
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "betas": ["some-new-thing-2026-11-01"],
    "mcp_servers": [{"type": "url"}],
    "service_tier": "auto",
    "container": None,
    "output_config": {"effort": "high"},
    "thinking": {"type": "adaptive"},
}


def test_fields_and_headers_of_tomorrow_are_ignored() -> None:
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-stainless-os": "x"}
    with serving(ScriptedSession(PLAIN, f"Hi{END}")) as address:
        answer = httpx.post(
            f"{address}/v1/messages?beta=true",
            json=CHAT | NEW_FIELDS | {"system": system},
            headers=headers,
        )
    assert answer.json()["content"] == [{"type": "text", "text": "Hi"}]


def test_a_schema_without_its_type_is_that_of_an_object() -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"place": "here"}}\n</tool_call>'
    schema = {"properties": {"place": {"type": "string"}}, "required": ["place"]}
    session = ScriptedSession(CHATML, *[call + END] * 2, context=4096)
    claude = {"tools": [{"name": "look", "input_schema": schema}]}
    function = {"type": "function", "function": {"name": "look", "parameters": schema}}
    with serving(session) as address:
        block = httpx.post(f"{address}/v1/messages", json=CHAT | claude).json()["content"][0]
        body = CHAT | {"tools": [function]}
        choice = httpx.post(f"{address}/v1/chat/completions", json=body).json()["choices"][0]
    assert (block["name"], block["input"]) == ("look", {"place": "here"})
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "look"


@pytest.mark.parametrize(
    ("form", "admits"),
    [
        ({"type": "json_object", "schema": {"type": "boolean"}}, "boolean"),
        ({"type": "json_schema", "schema": {"type": "boolean"}}, "boolean"),
        ({"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}}, "boolean"),
        ({"type": "json_object"}, "object"),
    ],
)
def test_every_form_of_a_format(form: Any, admits: str) -> None:
    session = ScriptedSession(PLAIN, f"true{END}")
    with serving(session) as address:
        body = CHAT | {"response_format": form}
        httpx.post(f"{address}/v1/chat/completions", json=body).raise_for_status()
    grammar = session.requests[0][1].grammar
    assert grammar is not None
    assert f'"type": "{admits}"' in grammar.text


class SlowVectors(ScriptedSession):
    """Vectors that take until the test lets them go; `begun` counts those that wait."""

    def __init__(self) -> None:
        super().__init__(PLAIN, f"Hi{END}")
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def embed(self, *given: Any, **options: Any) -> np.ndarray:
        self.begun.release()
        assert self.may_end.wait(60)
        return super().embed(*given, **options)


@pytest.fixture
def slow() -> Iterator[SlowVectors]:
    made = SlowVectors()
    yield made
    made.may_end.set()


def test_counting_and_answers_do_not_wait_for_vectors(slow: SlowVectors) -> None:
    """However many requests for vectors there are: agents count before each of their turns."""
    n = 48  # more than the threads that small works share
    with serving(slow) as address, ThreadPoolExecutor(n) as pool:
        url = f"{address}/v1/embeddings"
        waiting = [pool.submit(httpx.post, url, json={"input": "x"}, timeout=60) for _ in range(n)]
        for _ in range(n):
            assert slow.begun.acquire(timeout=60)
        counted = httpx.post(f"{address}/v1/messages/count_tokens", json=CHAT, timeout=60)
        assert counted.json()["input_tokens"] > 3
        said = httpx.post(f"{address}/v1/messages", json=CHAT, timeout=60)
        assert said.json()["content"][0]["text"] == "Hi"
        slow.may_end.set()
        assert {answer.result().status_code for answer in waiting} == {200}


def test_counting_does_not_wait_for_answers() -> None:
    session = ScriptedSession(PLAIN, *["word " * 9] * 2)
    session.hold()
    with serving(session) as address, ThreadPoolExecutor(2) as pool:
        url = f"{address}/v1/messages"
        running = [pool.submit(httpx.post, url, json=CHAT, timeout=60) for _ in range(2)]
        counted = httpx.post(f"{url}/count_tokens", json=CHAT, timeout=60)
        assert counted.json()["input_tokens"] > 3
        session.gate.release(1000)
        assert {answer.result().status_code for answer in running} == {200}
