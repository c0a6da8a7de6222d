"""OpenAI's API as its own Python package sees it, on answers that are written down."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from octavo.errors import OctavoError
from octavo.server.wire.openai import ChatBody
from serving import END, PLAIN, THINKER, ScriptedSession, serving

QUESTION: Any = [{"role": "user", "content": "Say it."}]
THOUGHT = f"It is easy.\n</think>\n\nHello, 世界 😸.{END}"
ANSWER = "Hello, 世界 😸."


@contextmanager
def client_of(session: ScriptedSession) -> Iterator[openai.OpenAI]:
    with (
        serving(session) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    """The address of a server that has no answer to anything."""
    with serving(ScriptedSession(THINKER)) as address:
        yield address


def ask(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(model="any", messages=QUESTION, **options)


def joined(chunks: list[Any], field: str) -> str:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return "".join(getattr(choice.delta, field, None) or "" for choice in choices)


def test_whole_and_streamed_agree() -> None:
    session = ScriptedSession(THINKER, THOUGHT, THOUGHT)
    with client_of(session) as client:
        whole = ask(client)
        chunks = list(ask(client, stream=True))
    message = whole.choices[0].message
    assert (message.role, message.content, message.reasoning_content) == (
        "assistant",
        ANSWER,
        "It is easy.",
    )
    assert joined(chunks, "content") == ANSWER
    assert joined(chunks, "reasoning_content") == "It is easy."
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)
    assert whole.object == "chat.completion"
    assert whole.usage.prompt_tokens_details.cached_tokens == 3
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    n_thought = len(session.tokenizer.encode("It is easy.\n</think>", parse_special=True))
    assert whole.usage.completion_tokens_details.reasoning_tokens == n_thought
    assert whole.timings["predicted_n"] == whole.usage.completion_tokens


def test_usage_comes_only_when_asked_for() -> None:
    with client_of(ScriptedSession(THINKER, THOUGHT)) as client:
        chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    *others, last = chunks
    assert last.choices == []
    assert last.usage.completion_tokens > 0
    assert all(chunk.choices and chunk.usage is None for chunk in others)


def test_raw_stream_is_what_the_format_says() -> None:
    session = ScriptedSession(PLAIN, f"Hi{END}")
    with serving(session) as address:
        answer = httpx.post(
            f"{address}/v1/chat/completions", json={"messages": QUESTION, "stream": True}
        )
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-request-id"].startswith("req_")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    for event in events[:-2]:
        assert event.startswith("data: ")
        choice = json.loads(event.removeprefix("data: "))["choices"][0]
        assert choice.keys() == {"index", "delta", "logprobs", "finish_reason"}


def test_several_choices_and_seeds() -> None:
    session = ScriptedSession(PLAIN, f"one{END}", f"two{END}", f"three{END}", f"four{END}")
    with client_of(session) as client:
        whole = ask(client, n=2, seed=7)
        chunks = list(ask(client, n=2, stream=True))
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert [choice.message.content for choice in whole.choices] == ["one", "two"]
    assert [params.seed for _, params in session.requests[:2]] == [7, 8]
    assert whole.usage.prompt_tokens < 2 * session.streams[0].usage.prompt_tokens
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == ["three", "four"]


def test_sampling_arrives() -> None:
    session = ScriptedSession(PLAIN, "x" * 50)
    with client_of(session) as client:
        answer = ask(
            client,
            temperature=0.25,
            top_p=0.5,
            frequency_penalty=0.5,
            presence_penalty=-0.5,
            logit_bias={"5": -100},
            max_completion_tokens=4,
            max_tokens=9,
            seed=-1,
            extra_body={"top_k": 3, "min_p": 0.1, "dry_penalty_last_n": 5, "unheard_of": {}},
        )
    _, params = session.requests[0]
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.25, 0.5, 3, 0.1)
    assert (params.frequency_penalty, params.presence_penalty) == (0.5, -0.5)
    assert (params.max_tokens, params.dry_last_n, params.seed) == (4, 5, None)
    assert params.logit_bias == {5: -100}
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["STOP", ["never", "STOP"]])
def test_stop_strings(stop: Any) -> None:
    with client_of(ScriptedSession(PLAIN, f"a, STOP b{END}")) as client:
        answer = ask(client, stop=stop)
    assert answer.choices[0].message.content == "a, "
    assert answer.choices[0].finish_reason == "stop"


def test_logprobs_are_those_of_the_answer() -> None:
    session = ScriptedSession(THINKER, THOUGHT, THOUGHT)
    with client_of(session) as client:
        whole = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
        chunks = list(ask(client, logprobs=True, top_logprobs=2, stream=True))
    data = b"".join(bytes(entry.bytes) for entry in whole)
    assert data.decode().strip() == ANSWER
    assert all(len(entry.top_logprobs) == 2 and entry.logprob == -0.5 for entry in whole)
    parts = [chunk.choices[0].logprobs for chunk in chunks]
    streamed = [entry for part in parts if part for entry in part.content]
    assert streamed == whole


def test_json_waits_for_the_end_of_thinking() -> None:
    session = ScriptedSession(THINKER, "Hm.\n</think>\n\n", f'{{"a": 1}}{END}', f"{{}}{END}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with client_of(session) as client:
        answer = ask(client, response_format=form)
        ask(client, response_format={"type": "json_object"}, reasoning_effort="none")
    assert json.loads(answer.choices[0].message.content) == {"a": 1}
    grammars = [params.grammar for _, params in session.requests]
    assert grammars[0] is None
    assert json.loads(grammars[1].text) == schema  # type: ignore[union-attr]
    assert json.loads(grammars[2].text) == {"type": "object"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": 1e9}, "temperature"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"response_format": {"type": "xml"}}, "xml"),
        ({"response_format": {"type": "json_schema"}}, "schema"),
        ({"response_format": {"type": "json_schema", "schema": {"type": "odd"}}}, "odd"),
        ({"grammar": 'root ::= "a"'}, "GBNF"),
        ({"logit_bias": {"cat": 1}}, "cat"),
        ({"messages": [{"role": "robot", "content": ""}]}, "robot"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    ],
)
def test_wrong_values_are_named(options: dict[str, Any], named: str, refusing: str) -> None:
    body = {"messages": QUESTION, **options}
    answer = httpx.post(f"{refusing}/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error.keys() == {"message", "type", "param", "code"}
    assert named in error["message"]


def test_prompt_at_the_edge_of_the_context() -> None:
    session = ScriptedSession(PLAIN, f"Hi{END}", f"Hi{END}")
    assert session.template
    n_tokens = len(session.template.prompt(ChatBody(messages=QUESTION).read()).ids)
    with client_of(session) as client:
        for limit, stream in itertools.product((n_tokens + 1, n_tokens, 5), (False, True)):
            session.set_context(limit)
            if limit > n_tokens:
                ask(client, stream=stream)
                continue
            with pytest.raises(openai.BadRequestError, match=f" {limit} .* {n_tokens} ") as raised:
                ask(client, stream=stream)
            assert raised.value.code == "context_length_exceeded"


def test_failure_in_the_middle_of_a_stream() -> None:
    session = ScriptedSession(PLAIN, OctavoError("the step failed", "Report it."), f"Hi{END}")
    with client_of(session) as client:
        with pytest.raises(openai.APIError, match="the step failed"):
            list(ask(client, stream=True))
        assert ask(client).choices[0].message.content == "Hi"  # the server goes on


def test_failure_without_stream_is_not_tried_again() -> None:
    session = ScriptedSession(PLAIN, OctavoError("the step failed"))
    with client_of(session) as client, pytest.raises(openai.InternalServerError) as raised:
        ask(client.with_options(max_retries=2))
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert raised.value.request_id is not None
    assert len(session.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_alone_is_no_success(stream: bool) -> None:
    session = ScriptedSession(THINKER, f"item 1\n{END}", END)
    with serving(session) as address:
        answer = httpx.post(
            f"{address}/v1/chat/completions", json={"messages": QUESTION, "stream": stream}
        )
        counted = httpx.get(f"{address}/metrics").text
    assert '"stopped_thinking":true' in answer.text
    assert "octavo_reasoning_only_total 1" in counted


def test_completions() -> None:
    session = ScriptedSession(PLAIN, f" a{END}", f" b{END}", f" c{END}", f" d{END}", f" e{END}")
    with client_of(session) as client:
        create = client.completions.create
        one = create(model="m", prompt="The river", echo=True, logprobs=1)
        two = create(model="m", prompt=["The", "river"])
        ids = session.tokenizer.encode("was low")
        by_ids = create(model="m", prompt=ids, max_tokens=1)
        chunks = list(
            create(model="m", prompt="x", stream=True, stream_options={"include_usage": True})
        )
    assert one.choices[0].text == "The river a"
    logprobs: Any = one.choices[0].logprobs
    assert "".join(logprobs.tokens) == "The river a"
    assert logprobs.text_offset[-1] == len("The river")
    assert [choice.text for choice in two.choices] == [" b", " c"]
    assert [choice.index for choice in two.choices] == [0, 1]
    assert session.requests[3][0] == "was low"
    assert by_ids.choices[0].finish_reason in ("stop", "length")
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == " e"
    assert chunks[-1].usage


def test_completions_refuse_what_they_cannot() -> None:
    with client_of(ScriptedSession(PLAIN)) as client:
        for options in ({"suffix": "x"}, {"best_of": 2}, {"n": 33}):
            with pytest.raises(openai.BadRequestError):
                client.completions.create(model="m", prompt="x", **options)  # type: ignore[call-overload]


def test_embeddings() -> None:
    session = ScriptedSession(PLAIN)
    with client_of(session) as client:
        by_default = client.embeddings.create(model="m", input=["The river", "low"])
        floats = client.embeddings.create(model="m", input="low", encoding_format="float")
        short = client.embeddings.create(model="m", input=[1, 2, 3], dimensions=2)
    n_first, n_second = (len(session.tokenizer.encode(t)) for t in ("The river", "low"))
    assert [row.index for row in by_default.data] == [0, 1]
    assert by_default.data[0].embedding == [n_first] * 4
    assert floats.data[0].embedding == [n_second] * 4
    assert short.data[0].embedding == [3, 3]
    assert by_default.usage.total_tokens == n_first + n_second


def test_base64_is_little_endian() -> None:
    with serving(ScriptedSession(PLAIN)) as address:
        body = {"input": [[1, 2]], "encoding_format": "base64"}
        data = httpx.post(f"{address}/v1/embeddings", json=body).json()["data"]
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(data[0]["embedding"]), "<f4"), [2, 2, 2, 2]
    )


def test_models() -> None:
    with client_of(ScriptedSession(PLAIN)) as client:
        (entry,) = client.models.list()
        assert entry.id == "scripted"
        assert client.models.retrieve(entry.id) == entry
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("hf:owner/other")


def test_earlier_turns_reach_the_template() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"a": 1}}}]
    messages: Any = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "r"},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]
    session = ScriptedSession(PLAIN, f"Hi{END}")
    with client_of(session) as client:
        client.chat.completions.create(model="m", messages=messages)
    system, _, called, result = session.asked[0].messages
    assert (system.role, system.content) == ("developer", "Be brief.")
    assert called.tool_calls[0].arguments == '{"a": 1}'
    assert called.reasoning == "r"
    assert (result.name, result.content) == ("look", "found")
