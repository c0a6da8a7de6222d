"""Known faults of other servers around thinking, streams, text and errors.

Each test is named after its case, and runs through all APIs, streamed and whole, where the case
can occur in them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

import octavo
from every_api import KINDS, Everywhere, Said
from octavo.chat import ENOUGH
from octavo.engine.stream import Stream
from octavo.server import sse
from octavo.server.app import make_app
from octavo.server.fleet import Fleet
from octavo.server.guard import Rules
from octavo.server.resident import Resident
from octavo.types import SamplingParams
from scripted_model import ScriptedModel, counting, make_engine
from serving import END, PLAIN, THINKER, ScriptedSession, serving
from test_known_faults_tools import THINKING, WRITE
from test_server_anthropic import raw_events
from test_server_wire import OFF
from tool_texts import written

QUESTION: Any = [{"role": "user", "content": "Say it."}]
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": QUESTION},
    "/v1/completions": {"prompt": "Say it."},
    "/v1/messages": {"messages": QUESTION, "max_tokens": 99},
    "/v1/responses": {"input": "Say it."},
    "/completion": {"prompt": "Say it."},
}
ENDED = {"chat": "stop", "messages": "end_turn", "responses": "completed"}


@pytest.fixture(scope="module")
def every() -> Iterator[Everywhere]:
    made = Everywhere()
    yield made
    made.close()


def check(said: dict[str, Said], content: str, reasoning: str = "") -> None:
    for way, answer in said.items():
        assert (answer.content, answer.reasoning) == (content, reasoning), way
        assert answer.finish == ENDED[way.partition(",")[0]], way


# A: thinking.


def test_A1_the_end_inside_of_thinking_asks_for_the_answer(every: Everywhere) -> None:
    thought = f"item 1 ok\nitem 2 ok\n{END}"
    check(every.ask(THINKER, thought, f"All ok.{END}"), "All ok.", "item 1 ok\nitem 2 ok")
    session, clients = every.at(THINKER)
    session.start_anew(thought, f"All ok.{END}")
    clients.ask("chat", False)
    first, second = (prompt for prompt, _ in session.requests)
    assert second.startswith(first + "item 1 ok\nitem 2 ok\n")
    assert second.endswith("</think>\n\n")


def test_A1_thinking_alone_is_never_plain_success(every: Everywhere) -> None:
    said = every.ask(THINKER, f"item 1 ok\n{END}", END)
    for way, answer in said.items():
        assert answer.content == "", way
        raw = answer.raw if isinstance(answer.raw, dict) else answer.raw.to_dict()
        if way != "messages, streamed":  # its package drops the mark: see the next line
            assert raw["stopped_thinking"] is True, way
    session, clients = every.at(THINKER)
    session.start_anew(f"item 1 ok\n{END}", END)
    body = {**BODIES["/v1/messages"], "stream": True}
    text = httpx.post(f"{clients.address}/v1/messages", json=body).text
    (delta,) = [data for name, data in raw_events(text) if name == "message_delta"]
    assert delta["stopped_thinking"] is True
    counted = httpx.get(f"{clients.address}/metrics").text
    assert "octavo_reasoning_only_total 7" in counted


@pytest.mark.parametrize("wish", OFF)
def test_A2_every_spelling_of_off_closes_the_thinking(every: Everywhere, wish: Any) -> None:
    session, clients = every.at(THINKER)
    session.start_anew(*[f"Hi{END}"] * 3)
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        httpx.post(clients.address + path, json=BODIES[path] | wish).raise_for_status()
    assert all(prompt.endswith("<think>\n\n</think>\n\n") for prompt, _ in session.requests)


@pytest.mark.parametrize("stream", [False, True])
def test_A2_thinking_without_end_leaves_room_for_the_answer(
    every: Everywhere, stream: bool
) -> None:
    session, clients = every.at(THINKER)
    for budget in ({}, {"thinking_budget": 64}):
        session.start_anew("hm " * 500, f"The answer.{END}")
        said = clients.ask("chat", stream, max_tokens=128, body=budget)
        assert said.content == "The answer."
        assert said.reasoning.startswith("hm hm")
        (_, first), (prompt, second) = session.requests
        n_thought = session.streams[0].n_read
        assert n_thought == (64 if budget else 96)
        assert ENOUGH.strip() in prompt
        assert second.max_tokens == 128 - n_thought


# C: messages and templates.

STRICT = """\
{%- for message in messages %}{% if message.role == "system" and not loop.first %}
{{ raise_exception("System message must be at the beginning.") }}{% endif %}\
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
LATE = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "system", "content": "reminder: be brief"},
    {"role": "user", "content": "go"},
]


@pytest.mark.parametrize("template", [STRICT, PLAIN])
@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (LATE, ["hi", "hello", "reminder: be brief", "go"]),
        ([{"role": "system", "content": ""}, *LATE], ["hi", "hello", "reminder: be brief", "go"]),
        ([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, *LATE[:1]], "ab"),
    ],
)
def test_C1_system_messages_stay_where_they_are(
    every: Everywhere, template: str, messages: Any, words: Any
) -> None:
    session, clients = every.at(template)
    session.start_anew(*[f"Hi{END}"] * 3)
    for kind in KINDS:
        assert clients.ask(kind, False, messages=messages).content == "Hi"
    for prompt, _ in session.requests:
        places = [prompt.index(word) for word in words]
        assert places == sorted(places)


def test_C1_developers_and_parts_are_understood(every: Everywhere) -> None:
    session, clients = every.at(STRICT)
    session.start_anew(*[f"Hi{END}"] * 2)
    parts: Any = [{"type": "text", "text": "Be brief."}]
    messages = [{"role": "developer", "content": parts}, *LATE[:3], {**LATE[2], "content": parts}]
    clients.ask("chat", False, messages=messages)
    clients.ask("responses", False, messages=[m | {"content": "x"} for m in messages])
    assert session.requests[0][0].count("Be brief.") == 2


def test_C1_prompts_grow_at_their_end(every: Everywhere) -> None:
    session, clients = every.at(STRICT)
    prompts = []
    for n in (1, 3, 4):
        session.start_anew(f"Hi{END}")
        clients.ask("chat", False, messages=[*LATE[:n], *LATE[3:]])
        prompts.append(session.requests[0][0].rpartition("<|im_start|>user")[0])
    assert prompts[1].startswith(prompts[0])
    assert prompts[2].startswith(prompts[1].rpartition("<|im_start|>user")[0])


def test_C1_what_a_template_refuses_is_a_400_with_line_and_reason(every: Everywhere) -> None:
    template = "{% for m in messages %}\n{{ raise_exception('not so') }}{% endfor %}"
    _, clients = every.at(template)
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        for stream in (False, True):
            answer = httpx.post(clients.address + path, json=BODIES[path] | {"stream": stream})
            assert answer.status_code == 400
            assert re.search("not so.*line 2", answer.json()["error"]["message"])


# Thinking of the turns before the last question is shown only on request, as Qwen3.6 has it.
FORGETS = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages if m.role == "user" %}{% set ns.last = loop.index %}{% endfor %}
{%- set ns.user = 0 %}
{%- for m in messages %}
{%- if m.role == "user" %}{% set ns.user = ns.user + 1 %}{% endif %}<|im_start|>{{ m.role }}
{% if m.role == "assistant" and (preserve_thinking or ns.user == ns.last) %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{{ "<think>\\n" }}"""


@pytest.mark.parametrize("sends_thinking", [True, False])
@pytest.mark.parametrize("preserve", [None, False])
@pytest.mark.parametrize("template", ["FORGETS", "qwen3.5", "qwen3.6"])
def test_C3_prompts_go_on_where_the_template_can_keep_thinking(
    template: str, preserve: bool | None, sends_thinking: bool, request: pytest.FixtureRequest
) -> None:
    """Four turns. Where it cannot, or must not, what differs begins with the latest thinking."""
    source = FORGETS
    if template != "FORGETS":
        folder = request.getfixturevalue("vectors").parent / "templates"
        source = (folder / f"{template}.jinja").read_text("utf-8")
    thoughts = [f"Thought {n}." for n in range(4)]
    scripts = [f"{text}\n</think>\n\nAnswer {n}.{END}" for n, text in enumerate(thoughts)]
    session = ScriptedSession(source, *scripts, context=1 << 14)
    wish = {} if preserve is None else {"chat_template_kwargs": {"preserve_thinking": preserve}}
    messages: list[Any] = []
    with client_at(session) as client:
        for turn in range(4):
            messages.append({"role": "user", "content": f"Question {turn}."})
            answer = client.post("/v1/chat/completions", json={"messages": messages, **wish})
            said = answer.raise_for_status().json()["choices"][0]["message"]
            assert said["reasoning_content"] == thoughts[turn]
            if not sends_thinking:
                del said["reasoning_content"]
            messages.append(said)
    prompts = [prompt for prompt, _ in session.requests]
    keeps = preserve is None and template != "qwen3.5"
    for n, (before, after) in enumerate(itertools.pairwise(prompts)):
        whole = before + scripts[n]
        common = len(os.path.commonprefix([whole, after]))
        begins = before.rindex("<|im_start|>assistant")
        assert common == len(whole) if keeps else begins <= common < len(before) + 8


@pytest.mark.parametrize("n_models", [1, 2])
def test_C4_every_documented_route_is_there(n_models: int) -> None:
    """Whether one model is served or several, and with several each answers for itself."""
    page = (Path(__file__).parents[1] / "docs" / "server.md").read_text()
    table = page.partition("## Routes")[2].partition("\n\n")[2].partition("\n\n")[0]
    documented = {
        p for row in table.splitlines() for p in re.findall(r"(/[\w/{}:.-]+)", row.split("|")[1])
    }
    session = ScriptedSession(PLAIN)
    names = "ab"[:n_models]
    fleet = Fleet([Resident(lambda report, plan: session, name) for name in names])
    app = make_app(fleet)
    known = {re.sub(r"\{[^}]*\}", "NAME", path) for path in app.openapi()["paths"]}
    known |= {"/docs", "/static", "/"}
    missing = {re.sub(r"\b(ID|NAME)\b", "NAME", path) for path in documented} - known
    assert len(documented) > 15
    assert not missing
    with serving(fleet) as address, httpx.Client(base_url=address, timeout=60) as client:
        wish = {"model": names[-1], "wait": True}
        assert client.post("/v1/models/load", json=wish).status_code == 200
        for path, name in itertools.product(("/props", "/slots", "/metrics", "/health"), names):
            assert client.get(f"{path}?model={name}").status_code == 200, (path, name)
        erased = client.post(f"/slots/0?action=erase&model={names[-1]}", json={})
        assert erased.json() == {"id_slot": 0, "n_erased": 3}


# D: beginnings that change.


def test_D3_the_attribution_header_does_not_change_the_prompt(every: Everywhere) -> None:
    session, clients = every.at(PLAIN)
    session.start_anew(*[f"Hi{END}"] * 2)
    for cch in ("a1b2c", "99999"):
        header = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={cch};"
        system = [{"type": "text", "text": text} for text in (header, "You are an agent.")]
        clients.anthropic.messages.create(
            model="m",
            max_tokens=9,
            system=system,
            messages=QUESTION,  # type: ignore[arg-type]
        )
    one, two = (prompt for prompt, _ in session.requests)
    assert one == two
    assert "You are an agent." in one


# E: limits.


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_E1_E2_a_prompt_at_the_edge(every: Everywhere, path: str, stream: bool) -> None:
    """One token fits or not; what does not fit is a status, not an event."""
    session, clients = every.at(PLAIN)
    session.start_anew(f"Hi{END}")
    body = BODIES[path] | {"stream": stream}
    httpx.post(clients.address + path, json=body).raise_for_status()
    n = len(session.tokenizer.encode(session.requests[0][0], parse_special=True))
    try:
        for limit in (n + 1, n, n - 1):
            session.start_anew(f"Hi{END}")
            session.set_context(limit)
            answer = httpx.post(clients.address + path, json=body)
            assert answer.status_code == (200 if limit > n else 400)
            if limit > n:
                continue
            assert answer.headers["content-type"] == "application/json"
            error = answer.json()["error"]
            if path == "/v1/messages":
                assert error["message"] == f"prompt is too long: {n} tokens > {limit} maximum"
                assert error["type"] == "invalid_request_error"
            else:
                words = f"maximum context length is {limit} tokens.*resulted in {n} tokens"
                if path == "/completion":
                    words = rf"\({n} tokens\) exceeds the available context size \({limit} tokens\)"
                assert re.search(
                    words, error["message"]
                )  # proxies look for no field, but for these
                assert (error["n_prompt_tokens"], error["n_ctx"]) == (n, limit)
            if path.startswith("/v1") and path != "/v1/messages":
                assert error["code"] == "context_length_exceeded"
    finally:
        session.set_context(1 << 16)


def test_E1_clients_know_the_error(every: Everywhere) -> None:
    session, clients = every.at(PLAIN)
    session.set_context(5)
    try:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError):
                clients.ask("chat", stream)
            with pytest.raises(openai.BadRequestError):
                clients.ask("responses", stream)
            with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
                clients.ask("messages", stream)
    finally:
        session.set_context(1 << 16)


@pytest.fixture(scope="module")
def tight(tiny_file: Callable[..., Path]) -> Iterator[str]:
    """A real model with a context of 64 tokens."""
    with serving(octavo.load(tiny_file("qwen3"), context=64, sequences=2)) as address:
        yield address


def test_E1_E3_an_answer_ends_where_the_context_does(tight: str) -> None:
    """Nothing is shifted: 60 tokens of prompt leave 4, however many were asked for."""
    body = {"prompt": [5] * 60, "max_tokens": 50, "n_predict": 50, "ignore_eos": True}
    answer = httpx.post(f"{tight}/v1/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["choices"][0]["finish_reason"] == "length"
    native = httpx.post(f"{tight}/completion", json=body, timeout=60).json()
    assert (native["tokens_predicted"], native["stop_type"]) == (4, "limit")
    assert native["truncated"] is True
    short = httpx.post(f"{tight}/completion", json=body | {"max_tokens": 2}, timeout=60).json()
    assert (short["tokens_predicted"], short["truncated"]) == (2, False)


@pytest.mark.parametrize("path", BODIES)
def test_E6_signs_of_life_before_the_first_token(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt takes as long as the test wants: the first event and a ping come meanwhile."""
    monkeypatch.setattr(sse.EventStream.__init__, "__kwdefaults__", _quick_pings())
    session = ScriptedSession(PLAIN, f"Hi{END}")
    session.hold()
    firsts = {"/v1/messages": b"message_start", "/v1/responses": b"response.created"}
    first = firsts.get(path, b'"object":' if path.startswith("/v1") else b"ping")
    with (
        serving(session) as address,
        httpx.stream("POST", address + path, json=BODIES[path] | {"stream": True}) as answer,
    ):
        assert answer.status_code == 200
        got = b""
        chunks = answer.iter_raw()
        while first not in got or got.count(b"ping") < 3:
            got += next(chunks)
        assert session.streams[0].n_read == 0
        session.gate.release(100)
        rest = got + b"".join(chunks)
    assert "".join(_texts(rest.decode())) == "Hi"


def _quick_pings() -> dict[str, Any]:
    return {**(sse.EventStream.__init__.__kwdefaults__ or {}), "ping_seconds": 0.02}


def test_E6_what_was_computed_for_a_client_that_left_is_kept() -> None:
    model = ScriptedModel(counting)
    prompt = list(range(1, 51))
    with make_engine(model, piece_tokens=8) as engine:
        model.hold()
        stream: Stream = engine.submit(prompt, SamplingParams(max_tokens=2))
        model.allow(4)
        stream.cancel()
        model.free()
        stream.ids()
        again = engine.submit(prompt, SamplingParams(max_tokens=2))
        again.ids()
    assert again.usage.cached_tokens >= 32


def test_E7_progress_is_for_those_who_ask(every: Everywhere) -> None:
    session, clients = every.at(PLAIN)
    for asks, path in itertools.product((False, True), BODIES):
        session.start_anew(f"Hi{END}")
        body = BODIES[path] | {"stream": True, "return_progress": asks}
        text = httpx.post(clients.address + path, json=body).text
        knows = path not in ("/v1/messages", "/v1/responses")  # their events are fixed
        assert text.count("prompt_progress") == (10 if asks and knows else 0), path


# G: clients that leave.


@pytest.mark.parametrize("path", BODIES)
def test_G3_a_client_that_leaves_ends_the_work(path: str) -> None:
    """In the prompt (no token yet) and in the answer, streamed and whole."""
    session = ScriptedSession(PLAIN)
    with serving(session) as address:
        host, port = address.removeprefix("http://").split(":")
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        for n_tokens, stream in itertools.product((0, 3), (False, True)):
            session.start_anew("word " * 200)
            session.hold()
            body = json.dumps(BODIES[path] | {"stream": stream}).encode()
            with socket.create_connection((host, int(port))) as link:
                link.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                _until(lambda: bool(session.streams))
                for _ in range(n_tokens):
                    session.gate.release()
                _until(lambda n=n_tokens: session.streams[0].n_read == n)  # type: ignore[misc]
            assert session.streams[0].cancelled.wait(20)
            assert session.streams[0].n_read == n_tokens


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_G3_what_waits_for_a_client_that_left_is_never_begun() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, max_running=1) as engine:
        model.hold()
        first = engine.submit([1, 2], SamplingParams(max_tokens=3))
        second = engine.submit([40, 41], SamplingParams(max_tokens=3))
        model.allow(1)
        second.cancel()
        model.free()
        first.ids()
        assert (second.ids(), second.finish_reason) == ([], "cancelled")
    assert not any(40 in ids for ids, _ in model.log)


# H: text.

TEXT = "😸 你好 é ﬁ 👩‍👩‍👧 \u0301x"


def _bytes(session: ScriptedSession, text: str | bytes) -> list[int]:
    """One token a byte; tags are tokens or letters as they come."""
    pieces = {session.tokenizer.piece(id): id for id in range(256)}
    data = text.encode() if isinstance(text, str) else text
    return [pieces[bytes([byte])] for byte in data]


def test_H1_characters_are_never_cut_in_any_field(every: Everywhere) -> None:
    session, clients = every.at(THINKING)
    call = written("qwen3_xml", [("write", {"path": TEXT, "content": TEXT})])
    ids = _bytes(session, f"{TEXT}\n</think>\n\n{TEXT}\n\n{call}")
    for kind, stream in itertools.product(KINDS, (False, True)):
        session.start_anew(ids)
        said = clients.ask(kind, stream, tools=[WRITE])
        assert said.reasoning == TEXT.strip()
        assert said.content.strip() == TEXT.strip()
        assert said.calls == [("write", {"path": TEXT, "content": TEXT})]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xf0\x9f\x98\xb8b", "a😸b"),
        (b"\xe4\xbd\xa0", "你"),
        (b"a\xffb", "a\ufffdb"),
        (b"a\xf0\x9f", "a\ufffd"),  # the end in the middle of a character
        (b"\xed\xa0\x80x", "\ufffd\ufffd\ufffdx"),  # half a pair has no UTF-8 form
    ],
)
def test_H1_bytes_that_are_no_text(every: Everywhere, path: str, data: bytes, text: str) -> None:
    session, clients = every.at(PLAIN)
    for stream in (False, True):
        session.start_anew(_bytes(session, data))
        answer = httpx.post(clients.address + path, json=BODIES[path] | {"stream": stream})
        answer.content.decode()
        found = _texts(answer.text) if stream else [_text(answer.json())]
        assert "".join(found) == text


def _texts(stream: str) -> list[str]:
    """What the events of any API add to the answer."""
    found = []
    for line in stream.splitlines():
        if not line.startswith("data: {"):
            continue
        data = json.loads(line[6:])
        if data.get("choices"):
            choice = data["choices"][0]
            found.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
        elif data.get("type") == "content_block_delta":
            found.append(data["delta"].get("text", ""))
        elif data.get("type") == "response.output_text.delta":
            found.append(data["delta"])
        elif "tokens_predicted" in data:
            found.append(data["content"])
    return found


def _text(body: dict[str, Any]) -> str:
    """The answer of a whole response of any API."""
    if "choices" in body:
        choice = body["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])
    if "output" in body:
        return str(body["output"][0]["content"][0]["text"])
    content = body["content"]
    return content if isinstance(content, str) else "".join(b["text"] for b in content)


@pytest.mark.parametrize("stop", ["</think", "think>", "k>\n\nH", "<", "easy", "\n"])
def test_H3_stop_strings_do_not_confuse_the_thinking(every: Everywhere, stop: str) -> None:
    script = f"It is easy.\n</think>\n\nHello, you.{END}"
    for way, answer in every.ask(THINKER, script, stop=[stop]).items():
        assert (answer.reasoning, answer.content) == ("It is easy.", "Hello, you."), way


CALL = written("qwen3_xml", [("write", {"path": "a", "content": "b"})])


@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        (f"Hm.\n</think>\n\nHello.{END}", {}, "stop"),
        (f"Hm.\n</think>\n\nHello.\n\n{CALL}{END}", {}, "tool_calls"),
        (f"</think>\n\n{CALL}\n{CALL}{END}", {}, "tool_calls"),
        ("Hm.\n</think>\n\n" + "word " * 90, {"max_tokens": 40}, "length"),
        (f"Hm.\n</think>\n\na STOP b{END}", {"stop": "STOP"}, "stop"),
        (END, {"enable_thinking": False}, "stop"),
    ],
)
@pytest.mark.parametrize("with_usage", [False, True])
def test_H4_chunks_are_what_strict_clients_expect(
    every: Everywhere, script: str, options: Any, reason: str, with_usage: bool
) -> None:
    session, clients = every.at(THINKING)
    session.start_anew(script)
    body = {"messages": QUESTION, "tools": [WRITE], "stream": True, **options}
    if with_usage:
        body["stream_options"] = {"include_usage": True}
    events = httpx.post(f"{clients.address}/v1/chat/completions", json=body).text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    if with_usage:
        *chunks, counts = chunks
        assert counts["choices"] == []
        assert counts["usage"]["total_tokens"] > 0
        assert all(chunk["usage"] is None for chunk in chunks)
    else:
        assert not any("usage" in chunk for chunk in chunks)
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    choices = [chunk["choices"] for chunk in chunks]
    assert all(len(choice) == 1 for choice in choices)
    keys = {"index", "delta", "logprobs", "finish_reason"}
    assert all(keys <= choice[0].keys() for choice in choices)
    reasons = [choice[0]["finish_reason"] for choice in choices]
    assert reasons == [None] * (len(reasons) - 1) + [reason]
    assert choices[0][0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1][0]["delta"] == {}
    assert all("role" not in choice[0]["delta"] for choice in choices[1:])


# H7: thinking that clients drop.


def test_H7_thinking_comes_back_although_the_client_dropped_it() -> None:
    """Where the template shows earlier thinking, the prompt of the next turn goes on from it."""
    template = (
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
        "{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n"
    )
    session = ScriptedSession(template, *[f"Hm, so.\n</think>\n\nHello.{END}"] * 3, context=4096)
    with serving(session) as address:
        turn = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "More."}]
        for messages in (QUESTION, QUESTION + turn):
            body = {"messages": messages}
            httpx.post(f"{address}/v1/chat/completions", json=body).raise_for_status()
    first, second = (prompt for prompt, _ in session.requests)
    assert second.startswith(f"{first}\nHm, so.\n</think>\n\nHello.")


# I: schemas.


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "if": {}, "then": {}}, "if"),
        ({"type": "string", "pattern": "(a"}, "(a|regex|pattern)"),
        ({"$ref": "#/$defs/nowhere"}, "nowhere"),
    ],
)
def test_I2_a_schema_that_cannot_hold_is_refused_by_name(
    every: Everywhere, tight: str, schema: Any, keyword: str
) -> None:
    _, clients = every.at(THINKER)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    bodies: dict[str, Any] = {
        "/v1/chat/completions": {"response_format": form},
        "/v1/responses": {
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}
        },
        "/v1/messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        "/completion": {"json_schema": schema},
    }
    for path, more in bodies.items():
        for stream in (False, True):
            body = BODIES[path] | more | {"stream": stream}
            address = tight if path == "/completion" else clients.address
            answer = httpx.post(address + path, json=body)
            assert answer.status_code == 400, path
            assert re.search(keyword, answer.json()["error"]["message"]), path


# M: what must never happen.


def test_M5_addresses_in_messages_are_never_fetched(every: Everywhere) -> None:
    _, clients = every.at(PLAIN)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.2)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/a.png"
        image = {"type": "image", "source": {"type": "url", "url": url}}
        parts: dict[str, Any] = {
            "/v1/chat/completions": {"type": "image_url", "image_url": {"url": url}},
            "/v1/messages": image,
            "/v1/responses": {"type": "input_image", "image_url": url},
        }
        for path, part in parts.items():
            field = "input" if path == "/v1/responses" else "messages"
            body = BODIES[path] | {field: [{"role": "user", "content": [part]}]}
            answer = httpx.post(clients.address + path, json=body)
            assert answer.status_code == 400
            assert "text only" in answer.json()["error"]["message"]
        with pytest.raises(TimeoutError):
            trap.accept()


FOREIGN = ("https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:1")


@pytest.mark.parametrize("named", [(), ("http://page.example",)])
def test_M7_pages_of_other_sites_may_read_nothing(named: tuple[str, ...]) -> None:
    """No origin is reflected, and no credentials are allowed; pages that are named may read."""
    rules = Rules(keys=("k",) if named else (), origins=named)
    with client_at(ScriptedSession(PLAIN), rules) as client:
        for path, origin in itertools.product(
            ("/v1/chat/completions", "/v1/messages", "/v1/models"),
            (*FOREIGN, "http://page.example"),
        ):
            head = {"origin": origin, "x-api-key": "k"}
            asks = {"access-control-request-method": "POST"}
            method = "GET" if path == "/v1/models" else "POST"
            for answer in (
                client.options(path, headers=head | asks),
                client.request(method, path, headers=head, json={}),
            ):
                allowed = answer.headers.get("access-control-allow-origin")
                assert allowed == (origin if origin in named else None)
                assert "access-control-allow-credentials" not in answer.headers


def test_M7_nothing_is_done_for_a_body_that_a_form_can_send() -> None:
    """A page may send such bodies anywhere without being asked: each route refuses them."""
    session = ScriptedSession(PLAIN)
    body = json.dumps({"model": "a", "messages": QUESTION, "prompt": "x", "input": "x"})
    with client_at(session) as client:
        paths = client.get("/openapi.json").json()["paths"]
        routes = [re.sub(r"\{[^}]*\}", "0", path) for path, made in paths.items() if "post" in made]
        assert len(routes) > 12
        for path, kind in itertools.product(
            routes, ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None)
        ):
            headers = {} if kind is None else {"content-type": kind}
            refused = client.post(path, content=body, headers=headers)
            assert refused.status_code == 415, (path, kind)
    assert not session.requests


@contextlib.contextmanager
def client_at(session: ScriptedSession, rules: Rules | None = None) -> Iterator[httpx.Client]:
    """One client, however slow the machine, of a server that runs while the block does."""
    with serving(session, rules) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client
