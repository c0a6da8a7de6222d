"""Anthropic's API as its own Python package sees it, on answers that are written down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import pytest

from octavo.errors import OctavoError, RequestError
from octavo.server.wire.anthropic import MessagesBody
from serving import END, PLAIN, THINKER, ScriptedSession, serving

QUESTION: Any = [{"role": "user", "content": "Say it."}]
THOUGHT = f"It is easy.\n</think>\n\nHello, 世界.{END}"


@contextmanager
def client_of(session: ScriptedSession) -> Iterator[anthropic.Anthropic]:
    with (
        serving(session) as address,
        anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as client,
    ):
        yield client


def ask(client: anthropic.Anthropic, **options: Any) -> Any:
    given = {"model": "any", "max_tokens": 100, "messages": QUESTION, **options}
    return client.messages.create(**given)


def raw_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, data) of each event."""
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_whole_and_streamed_agree() -> None:
    session = ScriptedSession(THINKER, THOUGHT, THOUGHT)
    with client_of(session) as client:
        whole = ask(client)
        given: Any = {"model": "any", "max_tokens": 100, "messages": QUESTION}
        with client.messages.stream(**given) as stream:
            streamed = stream.get_final_message()
    thinking, text = whole.content
    assert (thinking.thinking, text.text) == ("It is easy.", "Hello, 世界.")
    assert thinking.signature
    assert [b.to_dict() for b in streamed.content] == [b.to_dict() for b in whole.content]
    assert streamed.stop_reason == whole.stop_reason == "end_turn"
    assert whole.usage.cache_read_input_tokens == 3
    assert whole.usage.input_tokens + 3 == session.streams[0].usage.prompt_tokens
    assert streamed.usage.input_tokens == whole.usage.input_tokens
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 0


def test_events_are_in_order() -> None:
    session = ScriptedSession(THINKER, THOUGHT)
    with serving(session) as address:
        body = {"model": "m", "max_tokens": 99, "messages": QUESTION, "stream": True}
        events = raw_events(httpx.post(f"{address}/v1/messages?beta=true", json=body).text)
    names = [name for name, _ in events]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert all(data["type"] == name for name, data in events)
    open_index = None
    for name, data in events:
        if name == "content_block_start":
            assert open_index is None
            open_index = data["index"]
        elif name == "content_block_delta":
            assert data["index"] == open_index
        elif name == "content_block_stop":
            open_index = None
    assert [d["index"] for n, d in events if n == "content_block_start"] == [0, 1]
    deltas = [d["delta"]["type"] for n, d in events if n == "content_block_delta"]
    assert deltas.index("signature_delta") == deltas.index("text_delta") - 1


@pytest.mark.parametrize(
    ("script", "options", "reason", "sequence"),
    [
        (f"Hi{END}", {}, "end_turn", None),
        ("Hi " * 50, {"max_tokens": 4}, "max_tokens", None),
        (f"a STOP b{END}", {"stop_sequences": ["STOP"]}, "stop_sequence", "STOP"),
    ],
)
def test_stop_reasons(script: str, options: Any, reason: str, sequence: str | None) -> None:
    with client_of(ScriptedSession(PLAIN, script, script)) as client:
        whole = ask(client, **options)
        last = [event for event in ask(client, stream=True, **options)][-2]
    assert (whole.stop_reason, whole.stop_sequence) == (reason, sequence)
    assert (last.delta.stop_reason, last.delta.stop_sequence) == (reason, sequence)


def test_an_empty_answer_has_a_block() -> None:
    with client_of(ScriptedSession(PLAIN, END, END)) as client:
        assert ask(client).content[0].text == ""
        names = [event.type for event in ask(client, stream=True)]
    assert "content_block_start" in names


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_is_said_in_their_words(stream: bool) -> None:
    session = ScriptedSession(PLAIN, context=16)
    with client_of(session) as client, pytest.raises(anthropic.BadRequestError) as raised:
        ask(client, stream=stream)
    error: Any = raised.value.body
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    n_tokens = len(session.template.prompt(MessagesBody(messages=QUESTION).read()).ids)  # type: ignore[union-attr]
    assert error["error"]["message"] == f"prompt is too long: {n_tokens} tokens > 16 maximum"
    assert error["request_id"] == raised.value.response.headers["request-id"]


def test_failure_in_the_middle_of_a_stream() -> None:
    session = ScriptedSession(PLAIN, OctavoError("the step failed"))
    with client_of(session) as client, pytest.raises(anthropic.APIStatusError, match="step failed"):
        list(ask(client, stream=True))


def test_count_tokens_counts_the_prompt() -> None:
    session = ScriptedSession(PLAIN, f"Hi{END}")
    given: Any = {"model": "m", "messages": QUESTION, "system": "Be brief."}
    with client_of(session) as client:
        counted = client.messages.count_tokens(**given)
        answer = ask(client, system="Be brief.")
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_models() -> None:
    with client_of(ScriptedSession(PLAIN)) as client:
        (entry,) = client.models.list()
        assert (entry.id, entry.type) == ("scripted", "model")


def test_an_image_is_refused_politely() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    with client_of(ScriptedSession(PLAIN)) as client, pytest.raises(anthropic.BadRequestError) as e:
        ask(client, messages=[{"role": "user", "content": [image]}])
    assert "text only" in str(e.value)


def read(**values: Any) -> Any:
    return MessagesBody(**{"messages": QUESTION, **values}).read()


def test_agents_messages_are_understood() -> None:
    image = {"type": "image", "source": {}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "odd_new_kind"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "u1", "name": "look", "input": {"a": [1]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "u1", "content": [image]},
                {"type": "tool_result", "tool_use_id": "u2", "content": "b", "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "system", "content": "reminder"},
    ]
    user, assistant, first, second, more, system = read(messages=messages).messages
    assert user.role == "user"
    assert user.content == (
        "q\n\n[a part of the type odd_new_kind was left out: this model reads text only]"
    )
    assert (assistant.content, assistant.reasoning) == ("I look.", "t")
    (call,) = assistant.tool_calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("u1", "look", {"a": [1]})
    assert (first.role, first.name, first.tool_call_id) == ("tool", "look", "u1")
    assert "text only" in first.content
    assert (second.role, second.content) == ("tool", "b")
    assert (more.role, more.content) == ("user", "go on")
    assert (system.role, system.content) == ("system", "reminder")


def test_files_that_are_no_text_are_named() -> None:
    pdf = {"type": "document", "source": {"type": "base64", "data": "AAAA"}}
    page = {"type": "document", "source": {"type": "text", "data": "a page"}}
    given = [{"type": "text", "text": ""}, {"type": "text", "text": "Seen:"}, page, pdf]
    hit = {"type": "search_result", "source": "x", "title": "Hit", "content": [given[1]]}
    blocks = {"type": "document", "source": {"type": "content", "content": [given[1], "odd"]}}
    found = [{"type": "search_result", "source": "x"}, "odd"]
    result = {"type": "tool_result", "tool_use_id": "u1", "content": [*given, *found]}
    content = [result, page, pdf, hit, blocks, *found]
    tool, user = read(messages=[{"role": "user", "content": content}]).messages
    notes = [
        f"[a part of the type {kind} was left out: this model reads text only]"
        for kind in ("document", "search_result", "str")
    ]
    assert tool.content.split("\n") == ["Seen:", "a page", *notes]
    read_whole = ["a page", notes[0], "Hit\nSeen:", f"Seen:\n{notes[2]}"]
    assert user.content.split("\n\n") == [*read_whole, *notes[1:]]


def test_the_system_prompt_is_read_whole() -> None:
    """The attribution header is dropped later, for every API, and nothing else with it."""
    header = "x-anthropic-billing-header: cc_version=2; cch=a1b2c;"
    blocks = [{"type": "text", "text": text} for text in (header, "You are an agent.", "Rules.")]
    for system in (blocks, f"{header}\n\nYou are an agent.\n\nRules."):
        assert read(system=system).messages[0].content.endswith("You are an agent.\n\nRules.")


def test_tools_are_translated() -> None:
    tools = [
        {"name": "look", "description": "d", "input_schema": {"type": "object"}},
        {"name": "bare", "input_schema": {}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    look, bare = read(tools=tools).tools
    assert look["function"] == {
        "name": "look",
        "description": "d",
        "parameters": {"type": "object"},
    }
    assert bare["function"]["parameters"]["type"] == "object"


def test_tools_in_the_form_of_the_other_api_are_no_tools_of_a_server() -> None:
    """Those are left out; a client that is wrong about the API has to hear it."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(RequestError, match=r"tools\[0\] is declared as in OpenAI's API"):
        read(tools=[tool])


@pytest.mark.parametrize(
    ("given", "on", "budget"),
    [
        ({}, None, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, True, 2048),
        ({"thinking": {"type": "adaptive"}}, None, None),
        ({"thinking": {"type": "disabled"}}, False, None),
        ({"output_config": {"effort": "high"}}, True, None),
    ],
)
def test_thinking(given: Any, on: bool | None, budget: int | None) -> None:
    request = read(**given)
    assert (request.thinking, request.thinking_budget) == (on, budget)
