"""OpenAI's Responses API as its own Python package sees it, on answers that are written down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
from starlette.testclient import TestClient

from octavo.errors import OctavoError
from octavo.server.app import make_app
from octavo.server.fleet import Fleet
from octavo.server.resident import Resident
from octavo.server.wire.items import hidden, read_items
from octavo.server.wire.openai import ChatBody
from octavo.server.wire.responses import ResponsesBody
from octavo.server.wire.responses_store import ResponseStore, Stored
from octavo.types import Message
from serving import END, PLAIN, THINKER, ScriptedSession, serving
from test_server_anthropic import raw_events
from test_server_tools import CALLS, OPENAI_TOOLS
from tiny_vocabulary import CHATML

THOUGHT = f"It is easy.\n</think>\n\nHello, 世界 😸.{END}"
ANSWER = "Hello, 世界 😸."
FLAT_TOOLS: Any = [{"type": "function", **tool["function"]} for tool in OPENAI_TOOLS]


@contextmanager
def client_of(session: ScriptedSession) -> Iterator[openai.OpenAI]:
    with (
        serving(session) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


def streamed(client: openai.OpenAI, **options: Any) -> Any:
    """The response that the package's own accumulator makes of a stream."""
    with client.responses.stream(model="m", **options) as stream:
        return stream.get_final_response()


def plain(item: Any) -> dict[str, Any]:
    """An item without its id and what the package adds."""
    kept = {k: v for k, v in item.to_dict().items() if k not in ("id", "call_id")}
    kept.pop("parsed_arguments", None)
    for part in kept.get("content") or ():
        part.pop("parsed", None)
    return kept


@pytest.mark.parametrize("summary", [None, "auto"])
def test_whole_and_streamed_agree(summary: str | None) -> None:
    session = ScriptedSession(THINKER, THOUGHT, THOUGHT)
    given: Any = {"input": "Say it.", "reasoning": {"summary": summary}}
    with client_of(session) as client:
        whole = client.responses.create(model="m", **given)
        parts = streamed(client, **given)
    assert whole.status == parts.status == "completed"
    assert whole.output_text == parts.output_text == ANSWER
    assert [plain(i) for i in whole.output] == [plain(i) for i in parts.output]
    thinking: Any = whole.output[0]
    text = (thinking.summary if summary else thinking.content)[0].text
    assert (thinking.type, text) == ("reasoning", "It is easy.")
    usage: Any = whole.usage
    assert usage.input_tokens_details.cached_tokens == 3
    assert usage.output_tokens_details.reasoning_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert parts.usage == usage


def test_events_are_in_order() -> None:
    with serving(ScriptedSession(THINKER, THOUGHT)) as address:
        body = {"model": "m", "input": "Say it.", "stream": True}
        events = raw_events(httpx.post(f"{address}/v1/responses", json=body).text)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert all(data["type"] == name for name, data in events)
    names = [name.removeprefix("response.") for name, _ in events]
    once = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    assert once == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    first, last = events[0][1]["response"], events[-1][1]["response"]
    assert (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)
    assert first["id"] == last["id"]
    added = [d["item"] for n, d in events if n == "response.output_item.added"]
    assert [i["status"] for i in added] == ["in_progress"] * 2
    assert added[1]["content"] == []
    places = {d["item_id"]: d["output_index"] for _, d in events if "item_id" in d}
    assert places == {item["id"]: i for i, item in enumerate(last["output"])}


def test_calls_and_their_results() -> None:
    script = f"It is there.{END}"
    session = ScriptedSession(CHATML, CALLS, CALLS, script, context=4096)
    given: Any = {"input": "Say it.", "tools": FLAT_TOOLS, "instructions": "Be brief."}
    with client_of(session) as client:
        whole = client.responses.create(model="m", **given)
        parts = streamed(client, **given)
        assert [plain(i) for i in whole.output] == [plain(i) for i in parts.output]
        assert [i.type for i in whole.output] == ["message", "function_call", "function_call"]
        calls: Any = whole.output[1:]
        assert [json.loads(c.arguments) for c in calls] == [{"place": "a < b"}, {}]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": call.name}
            for call in calls
        ]
        stateless = [{"role": "user", "content": "Say it."}, *whole.output, *results]
        answer = client.responses.create(model="m", input=stateless)  # type: ignore[arg-type]
    assert answer.output_text == "It is there."
    user, called, first, second = session.asked[-1].messages
    assert (user.role, called.role, called.content.strip()) == ("user", "assistant", "I look.")
    assert [c.name for c in called.tool_calls] == ["look", "go"]
    assert [(m.role, m.name, m.content) for m in (first, second)] == [
        ("tool", "look", "look"),
        ("tool", "go", "go"),
    ]


def test_a_conversation_goes_on_from_a_stored_response() -> None:
    session = ScriptedSession(THINKER, THOUGHT, *[f"Yes.\n</think>\n\nMore.{END}"] * 3)
    with client_of(session) as client:
        create = client.responses.create
        first = create(model="m", input="one", instructions="Old.", metadata={"a": "b"})
        second = create(model="m", input="two", previous_response_id=first.id, instructions="New.")
        create(model="m", input="three", previous_response_id=second.id, store=False)
        assert client.responses.retrieve(first.id).to_dict() == first.to_dict()
        assert first.metadata == {"a": "b"}
        (item,) = client.responses.input_items.list(second.id).data
        assert item.content[0].text == "two"  # type: ignore[union-attr]
        by_reference: Any = [{"type": "item_reference", "id": item.id}]
        create(model="m", input=by_reference)
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match=first.id):
            create(model="m", input="x", previous_response_id=first.id)
    said = [(m.role, m.content) for m in session.asked[2].messages]
    assert said == [
        ("user", "one"),
        ("assistant", ANSWER),
        ("user", "two"),
        ("assistant", "More."),
        ("user", "three"),
    ]
    assert session.asked[1].messages[0] == Message("system", "New.")
    assert session.asked[2].messages[1].reasoning == "It is easy."
    assert [m.content for m in session.asked[3].messages] == ["two"]


def test_references_to_references_and_to_what_is_gone() -> None:
    """Clients that refer to items send all of them again each turn, and the first ones go."""
    session = ScriptedSession(THINKER, THOUGHT, *[f"Yes.\n</think>\n\nMore.{END}"] * 2)
    with client_of(session) as client:
        create = client.responses.create
        question: Any = {"role": "user", "content": "one"}
        first = create(model="m", input=[question])
        told: Any = [question, *({"type": "item_reference", "id": i.id} for i in first.output)]
        second = create(model="m", input=[*told, {"role": "user", "content": "two"}])
        listed = client.responses.input_items.list(second.id, order="asc").data
        assert [item.type for item in listed] == ["message", "reasoning", "message", "message"]
        client.responses.delete(first.id)
        create(model="m", input=[*told, {"role": "user", "content": "three"}])
    for asked in session.asked[1:]:
        assert [m.role for m in asked.messages] == ["user", "assistant", "user"]
        assert (asked.messages[1].reasoning, asked.messages[1].content) == ("It is easy.", ANSWER)


def test_what_is_not_stored_is_not_there() -> None:
    with client_of(ScriptedSession(PLAIN, f"Hi{END}", f"Hi{END}")) as client:
        gone = client.responses.create(model="m", input="x", store=False)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone.id)
        kept = streamed(client, input="x")
        assert client.responses.retrieve(kept.id).output_text == "Hi"


def test_the_store_is_bounded() -> None:
    def stored(id: str, n_chars: int, n_bytes: int = 20) -> Stored:
        return Stored({"id": id, "output": []}, [], (Message("user", "x" * n_chars),), n_bytes)

    store = ResponseStore(max_responses=2, max_bytes=10_000)
    for id in "abc":
        store.put(stored(id, 10))
    assert (store.get("a"), len(store)) == (None, 2)
    assert store.get("b")
    store.put(stored("d", 7000))
    assert (store.get("c"), bool(store.get("b"))) == (None, True)
    store.put(stored("e", 50_000))
    assert len(store) == 0
    store.put(stored("f", 10))
    assert store.delete("f")
    assert not store.delete("f")
    store.put(stored("g", 8999))
    assert store.get("g")
    store.put(stored("h", 10, n_bytes=9000))
    assert not store.get("g")
    assert store.get("h")


def test_what_is_referred_to_counts_where_it_is_kept() -> None:
    """Else a chain of references would keep what went long ago, beyond every bound."""
    store = ResponseStore(max_bytes=10_000)
    item = {"id": "i", "type": "message", "role": "user", "content": "x" * 4000}
    store.put(Stored({"id": "a", "output": [item]}, [], (), 4100))
    reference = {"type": "item_reference", "id": "i"}
    store.put(Stored({"id": "b", "output": []}, [reference], (), 100))
    kept = store.get("b")
    assert kept is not None
    assert kept.input == [item]
    assert kept.n_bytes > 4100
    store.put(Stored({"id": "c", "output": []}, [reference], (), 100))
    assert not store.get("a")


@pytest.mark.parametrize("stream", [True, False])
def test_all_that_a_response_holds_is_counted(stream: bool) -> None:
    """Question, answer, and the instructions that the answer repeats."""
    session = ScriptedSession(PLAIN, "b" * 500 + END, context=20_000)
    fleet = Fleet([Resident(lambda report, plan: session, "m")])
    app = make_app(fleet)
    body = {"input": "a" * 2000, "instructions": "c" * 3000, "stream": stream}
    with TestClient(app, base_url="http://localhost") as client:
        while fleet.first.state != "ready":
            time.sleep(0.001)
        assert client.post("/v1/responses", json=body).status_code == 200
    (kept,) = app.state.responses._kept.values()
    assert kept.n_bytes >= 2000 + 500 + 2 * 3000


def test_how_it_ended() -> None:
    session = ScriptedSession(THINKER, "Hi " * 50, "x" * 50, f"a STOP b{END}")
    with client_of(session) as client:
        for make in (client.responses.create, client.responses.create):
            answer = make(model="m", input="x", max_output_tokens=4, reasoning={"effort": "none"})
            assert answer.status == "incomplete"
            assert answer.incomplete_details.reason == "max_output_tokens"  # type: ignore[union-attr]
        stopped = client.responses.create(
            model="m", input="x", reasoning={"effort": "none"}, extra_body={"stop": "STOP"}
        )
    assert (stopped.status, stopped.output_text) == ("completed", "a ")
    assert session.requests[0][1].max_tokens == 4


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_format_of_the_text(kind: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form: Any = {"type": kind}
    if kind == "json_schema":
        form |= {"name": "n", "schema": schema, "strict": True}
    session = ScriptedSession(PLAIN, f'{{"a": 1}}{END}')
    with client_of(session) as client:
        answer = client.responses.create(model="m", input="x", text={"format": form})
    grammar = session.requests[0][1].grammar
    assert grammar is not None
    assert json.loads(grammar.text) == (schema if kind == "json_schema" else {"type": "object"})
    assert answer.text.format.type == kind  # type: ignore[union-attr]


def test_logprobs_are_those_of_the_text() -> None:
    session = ScriptedSession(THINKER, THOUGHT, THOUGHT)
    given: Any = {"input": "x", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    with client_of(session) as client:
        whole = client.responses.create(model="m", **given)
        parts = streamed(client, **given)
    one, other = (r.output[1].content[0].logprobs for r in (whole, parts))
    assert b"".join(bytes(entry.bytes) for entry in one).decode().strip() == ANSWER
    assert [e.token for e in one] == [e.token for e in other]
    assert all(len(e.top_logprobs) == 2 for e in one)


def test_thinking_comes_back_in_the_form_that_clients_keep() -> None:
    session = ScriptedSession(THINKER, THOUGHT, f"</think>Hi{END}")
    with client_of(session) as client:
        answer = client.responses.create(
            model="m", input="x", include=["reasoning.encrypted_content"], store=False
        )
        carried = [item.to_dict() for item in answer.output]
        del carried[0]["content"]
        assert carried[0]["encrypted_content"] == hidden("It is easy.")
        client.responses.create(model="m", input=[*carried, {"role": "user", "content": "y"}])  # type: ignore[list-item]
    assistant, _ = session.asked[1].messages
    assert (assistant.reasoning, assistant.content) == ("It is easy.", ANSWER)


def test_custom_tools_take_one_text() -> None:
    tool: Any = {"type": "custom", "name": "patch", "description": "Change a file."}
    tool["format"] = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    patch = '*** "Begin"\n+é'
    call = json.dumps({"name": "patch", "arguments": {"input": patch}})
    script = f"<tool_call>\n{call}\n</tool_call>{END}"
    session = ScriptedSession(CHATML, script, script, f"Done.{END}", context=4096)
    with client_of(session) as client:
        whole = client.responses.create(model="m", input="x", tools=[tool])
        parts = streamed(client, input="x", tools=[tool])
        (item,) = whole.output
        assert [plain(i) for i in parts.output] == [plain(item)]
        assert (item.type, item.name, item.input) == ("custom_tool_call", "patch", patch)
        result: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "ok"}
        client.responses.create(model="m", input=[item, result])  # type: ignore[list-item]
    declared = session.asked[0].tools[0]["function"]
    assert "start: x" in declared["description"]
    called, answered = session.asked[-1].messages
    assert json.loads(called.tool_calls[0].arguments) == {"input": patch}
    assert (answered.name, answered.content) == ("patch", "ok")


IN_NAMESPACES: Any = [
    {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}},
    {
        "type": "namespace",
        "name": "mcp__books",
        "description": "A library.",
        "tools": [
            {"type": "function", "name": "find", "parameters": {"type": "object"}},
            {"type": "custom", "name": "note"},
        ],
    },
]


@pytest.mark.parametrize("beside", [True, False])
def test_tools_in_namespaces(beside: bool) -> None:
    """Codex has tools in namespaces; for models of some names they stand in the input."""
    calls = [("find", {}), ("mcp__books__find", {}), ("mcp__books__note", {"input": "a b"})]
    texts = [json.dumps({"name": name, "arguments": given}) for name, given in calls]
    script = "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts) + END
    session = ScriptedSession(CHATML, script, script, f"Done.{END}", context=4096)
    asked: Any = [{"role": "user", "content": "x"}]
    listed = {"type": "additional_tools", "role": "developer", "tools": IN_NAMESPACES}
    given: Any = {"input": asked if beside else [listed, *asked]}
    if beside:
        given["tools"] = IN_NAMESPACES
    with client_of(session) as client:
        whole = client.responses.create(model="m", **given)
        parts = streamed(client, **given)
        items = [item.to_dict() for item in whole.output]
        assert [plain(i) for i in parts.output] == [plain(i) for i in whole.output]
        assert [(i["type"], i["name"], i.get("namespace")) for i in items] == [
            ("function_call", "find", None),
            ("function_call", "find", "mcp__books"),
            ("custom_tool_call", "note", "mcp__books"),
        ]
        assert items[2]["input"] == "a b"
        results: Any = [
            {"type": f"{i['type']}_output", "call_id": i["call_id"], "output": "ok"} for i in items
        ]
        client.responses.create(model="m", **given | {"input": [*given["input"], *items, *results]})
    for request in session.asked:
        names = [tool["function"]["name"] for tool in request.tools]
        assert names == [name for name, _ in calls]
    user, called, *found = session.asked[-1].messages
    assert user.content == "x"
    assert [call.name for call in called.tool_calls] == [name for name, _ in calls]
    assert [m.name for m in found] == [name for name, _ in calls]


@pytest.mark.parametrize(
    ("choice", "mode", "forced", "shown"),
    [
        ({"type": "function", "name": "find"}, "required", "find", 3),  # the one of no namespace
        (
            {"type": "function", "name": "find", "namespace": "mcp__books"},
            "required",
            "mcp__books__find",
            3,
        ),
        ({"type": "custom", "name": "note"}, "required", "mcp__books__note", 3),
        ({"type": "function", "name": "mcp__books__find"}, "required", "mcp__books__find", 3),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "namespace", "name": "mcp__books"}],
            },
            "required",
            "",
            ["mcp__books__find", "mcp__books__note"],
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "custom", "name": "note"}],
            },
            "auto",
            "",
            ["mcp__books__note"],
        ),
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_a_tool_of_a_namespace_is_chosen(
    beside: bool, choice: Any, mode: str, forced: str, shown: Any
) -> None:
    listed = {"type": "additional_tools", "role": "developer", "tools": IN_NAMESPACES}
    given: Any = {"input": [{"role": "user", "content": "x"}], "tool_choice": choice}
    if beside:
        given["tools"] = IN_NAMESPACES
    else:
        given["input"].insert(0, listed)
    body = ResponsesBody(**given)
    request, _ = body.read((), lambda id: None)
    assert (request.tool_choice.mode, request.tool_choice.name) == (mode, forced)
    names = [tool["function"]["name"] for tool in request.tools]
    assert names == shown if isinstance(shown, list) else len(names) == shown
    assert body.echo()["tool_choice"] == choice


def test_choices_of_no_tool_are_refused() -> None:
    twice: Any = [{**IN_NAMESPACES[1], "name": name} for name in ("one", "two")]
    with client_of(ScriptedSession(CHATML)) as client:
        for name, tools in (("absent", IN_NAMESPACES), ("find", twice)):
            choice: Any = {"type": "function", "name": name}
            with pytest.raises(openai.BadRequestError, match=name):
                client.responses.create(model="m", input="x", tools=tools, tool_choice=choice)


def test_results_that_are_no_text_are_named() -> None:
    """An agent whose tool gave an image could not go on if its results were refused."""
    call: Any = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    output = [{"type": "input_text", "text": "Seen:"}, image]
    result: Any = {"type": "function_call_output", "call_id": "c", "output": output}
    session = ScriptedSession(CHATML, f"a{END}", f"b{END}", context=4096)
    chat: Any = [
        {"role": "user", "content": "x"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url"}, "Seen:", 5]},
    ]
    with client_of(session) as client:
        client.responses.create(model="m", input=[call, result])
        client.chat.completions.create(model="m", messages=chat)
    by_items, by_chat = (asked.messages[-1].content for asked in session.asked)
    assert by_items.startswith("Seen:\n[a part of the type input_image was left out")
    assert "AAAA" not in by_items
    assert "image_url was left out" in by_chat
    assert "\nSeen:\n[a part of the type int" in by_chat


def test_tools_that_run_elsewhere_are_left_out_and_others_chosen() -> None:
    session = ScriptedSession(CHATML, f"a{END}", f"b{END}", context=4096)
    tools: Any = [{"type": "web_search"}, *FLAT_TOOLS]
    allowed: Any = {"type": "allowed_tools", "mode": "auto", "tools": [FLAT_TOOLS[1]]}
    with client_of(session) as client:
        client.responses.create(model="m", input="x", tools=tools)
        client.responses.create(model="m", input="x", tools=tools, tool_choice=allowed)
    names = [[t["function"]["name"] for t in asked.tools] for asked in session.asked]
    assert names == [["look", "go"], ["go"]]


def test_counting_the_input() -> None:
    session = ScriptedSession(PLAIN, f"Hi{END}")
    with client_of(session) as client:
        counted = client.responses.input_tokens.count(model="m", input="x", instructions="y")
        answer = client.responses.create(model="m", input="x", instructions="y")
    assert counted.input_tokens == answer.usage.input_tokens  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"input": [{"type": "web_search_call", "id": "w"}]}, r"input\[0\].*web_search_call"),
        ({"input": [{"role": "user", "content": "x"}, {"type": None}]}, r"input\[1\].*None"),
        ({"input": [{"role": "robot", "content": "x"}]}, "robot"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
        ({"input": [{"type": "item_reference", "id": "nowhere"}]}, "nowhere"),
        ({"input": []}, "input"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "xml"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "temperature": 1e9}, "temperature"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "tools": [{"type": "function"}]}, r"tools\[0\]"),
    ],
)
def test_wrong_values_are_named(options: dict[str, Any], named: str) -> None:
    with (
        client_of(ScriptedSession(THINKER)) as client,
        pytest.raises(openai.BadRequestError, match=named),
    ):
        client.responses.create(model="m", **options)


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_is_an_error_before_anything_is_sent(stream: bool) -> None:
    with (
        client_of(ScriptedSession(PLAIN, context=5)) as client,
        pytest.raises(openai.BadRequestError) as raised,
    ):
        client.responses.create(model="m", input="x", stream=stream)
    assert raised.value.code == "context_length_exceeded"


def test_failure_in_the_middle_of_a_stream() -> None:
    session = ScriptedSession(PLAIN, OctavoError("the step failed", "Report it."), f"Hi{END}")
    with client_of(session) as client:
        *_, last = list(client.responses.create(model="m", input="x", stream=True))
        assert last.type == "response.failed"
        assert "the step failed" in last.response.error.message  # type: ignore[union-attr]
        assert last.response.status == "failed"
        assert client.responses.create(model="m", input="x").output_text == "Hi"


def test_thinking_alone_is_no_success() -> None:
    session = ScriptedSession(THINKER, f"item 1\n{END}", END, f"item 1\n{END}", END)
    with client_of(session) as client:
        whole = client.responses.create(model="m", input="x")
        parts = streamed(client, input="x")
    for answer in (whole, parts):
        assert answer.to_dict()["stopped_thinking"] is True
        assert [item.type for item in answer.output] == ["reasoning", "message"]


def test_parallel_turns_are_told_apart() -> None:
    def thought(text: str) -> dict[str, Any]:
        return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}

    def call(name: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": name, "name": name, "arguments": "{}"}

    items = [
        thought("a"),
        call("f"),
        thought("b"),
        call("g"),
        {"role": "assistant", "content": "c"},
    ]
    first, second, third = read_items(items, lambda id: None)
    assert (first.reasoning, [c.name for c in first.tool_calls]) == ("a", ["f"])
    assert (second.reasoning, [c.name for c in second.tool_calls]) == ("b", ["g"])
    assert (third.content, third.reasoning) == ("c", "")


# Requests of this shape that arrive at the chat route (Cursor).


def test_the_chat_route_understands_this_shape() -> None:
    session = ScriptedSession(CHATML, CALLS, context=4096)
    body = {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "developer", "content": "Rules."},
            {"role": "user", "content": [{"type": "input_text", "text": "Say it."}]},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "found"},
        ],
        "tools": [{**tool, "strict": False} for tool in FLAT_TOOLS],
        "tool_choice": {"type": "function", "name": "look"},
        "max_output_tokens": 500,
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "text"}},
    }
    with serving(session) as address:
        answer = httpx.post(f"{address}/v1/chat/completions", json=body).json()
    assert answer["object"] == "chat.completion"
    assert [c["function"]["name"] for c in answer["choices"][0]["message"]["tool_calls"]] == [
        "look",
        "go",
    ]
    (asked,) = session.asked
    assert [m.role for m in asked.messages] == ["system", "developer", "user", "assistant", "tool"]
    assert asked.messages[2].content == "Say it."
    assert asked.tools[0]["function"]["name"] == "look"
    assert asked.tool_choice.name == "look"
    assert asked.params.max_tokens == 500
    # The same request in the chat's own shape is the same prompt.
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Rules."},
        {"role": "user", "content": "Say it."},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "found"},
    ]
    assert ChatBody(messages=messages).read().messages == asked.messages


def test_the_chat_route_takes_a_text_as_input() -> None:
    request = ChatBody(input="Say it.", text={"format": {"type": "json_object"}}).read()
    assert request.messages == (Message("user", "Say it."),)
    assert request.params.grammar is not None
    both, _ = ResponsesBody(input="Say it.").read((), lambda id: None)
    assert both.messages == request.messages
