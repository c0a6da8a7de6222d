"""Known faults of other servers around tool calls: each test is named after its case.

Each runs through all APIs, streamed and whole, and must give the same by all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from every_api import Everywhere
from serving import END, PLAIN, THINKER
from tool_texts import written

# Templates that show the tools and speak Qwen3-Coder's dialect.
TOOLED = "{% if tools %}{{ tools }}{% endif %}{# <function= #}" + PLAIN
THINKING = "{% if tools %}{{ tools }}{% endif %}{# <function= #}" + THINKER
FINISH = {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"}
ENDED = {"chat": "stop", "messages": "end_turn", "responses": "completed"}


def tool(name: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TEXT = {"type": "string"}
WRITE = tool("write", {"path": TEXT, "content": TEXT}, ("path", "content"))


def check(said: dict[str, Any], content: str, calls: list[Any], reasoning: str = "") -> None:
    """All six say this, and that they ended with calls if there are any."""
    for way, answer in said.items():
        assert answer.content.strip() == content, way
        assert answer.calls == calls, way
        assert answer.reasoning == reasoning, way
        kind = way.partition(",")[0]
        assert answer.finish == (FINISH if calls else ENDED)[kind], way


@pytest.fixture(scope="module")
def every() -> Iterator[Everywhere]:
    made = Everywhere()
    yield made
    made.close()


# Only what looks exactly like the end of a value is taken for it.
CODE = [
    'if (a<b && c>d) { s = "</p>"; }',
    '</div>\n<div class="x">\n',
    "x</parameter>",
    "a\n</parameter>\nb\n</function>c",
    "<tool_call>\n<function=write>\n<parameter=path>\nx",
    "é 汉字 😸\r\n\ttab \\n \\u0041 \x01",
    '{"a": [1, 2',
    "",
    "\n\n  \n",
    "x = '</tool_call>'\n# </think> <think>\n",
]


@pytest.mark.parametrize("value", CODE)
def test_B1_code_with_tags_is_no_xml(every: Everywhere, value: str) -> None:
    arguments = {"path": "/x", "content": value}
    said = every.ask(TOOLED, written("qwen3_xml", [("write", arguments)]) + END, tools=[WRITE])
    check(said, "", [("write", arguments)])


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("<parameter=path>\n/x.clj\n</parameter>\n</parameter>\n</function>", {"path": "/x.clj"}),
        ("<parameter=path>\n/x\n</parameter>\n</function>", {"path": "/x"}),
        ("</function>", {}),
        (
            "<parameter=path>\n/x\n</parameter>\n</parameter>\n<parameter=content>\ny\n</parameter>\n"
            "</function>\n</function>",
            {"path": "/x", "content": "y"},
        ),
    ],
)
def test_B3_stray_tags_and_missing_arguments_are_still_calls(
    every: Everywhere, body: str, arguments: Any
) -> None:
    script = f"<tool_call>\n<function=write>\n{body}\n</tool_call>{END}"
    check(every.ask(TOOLED, script, tools=[WRITE]), "", [("write", arguments)])


def test_B4_words_before_a_call_are_content(every: Everywhere) -> None:
    call = written("qwen3_xml", [("write", {"path": "a", "content": "b"})])
    said = every.ask(TOOLED, f"I'll search now.\n\n{call}{END}", tools=[WRITE])
    check(said, "I'll search now.", [("write", {"path": "a", "content": "b"})])


WILD: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {"p": {"type": "string", "pattern": "^[a-z]+(?=x)$"}}},
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "null"}},
    },
    {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
    {"type": "object", "properties": {"a": {"type": ["string", "null"], "format": "uri"}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}},
    {"type": "object", "properties": {"a-b.c/d": {"type": "array", "items": {}}}},
    {"type": "object", "properties": {"x": {"enum": [1, "a", None]}}, "required": ["x"]},
]


def test_B4_two_hundred_tools_of_any_name_and_schema(every: Everywhere) -> None:
    tools = [
        {"type": "function", "function": {"name": f"mcp__srv-{i}__do.it", "parameters": schema}}
        for i, schema in enumerate(WILD * 20)
    ]
    script = written("qwen3_xml", [("mcp__srv-199__do.it", {"x": "a"})]) + END
    said = every.ask(TOOLED, script, tools=tools)
    for way, answer in said.items():
        assert answer.calls == [("mcp__srv-199__do.it", {"x": "a"})], way


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [({"type": "string", "pattern": "(a"}, "pattern"), ({"type": "strange"}, "type")],
)
def test_B4_a_schema_that_cannot_be_is_a_400_that_names_it(
    every: Everywhere, schema: Any, keyword: str
) -> None:
    bad = tool("mcp__srv__search-by-title", {"q": schema})
    flat = {"type": "function", **bad["function"]}
    theirs = {"name": bad["function"]["name"], "input_schema": bad["function"]["parameters"]}
    bodies: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "tools": [bad]},
        "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "tools": [theirs]},
        "/v1/responses": {"input": "x", "tools": [flat]},
    }
    address = every.at(TOOLED)[1].address
    for path, body in bodies.items():
        for stream in (False, True):
            answer = httpx.post(address + path, json={**body, "stream": stream})
            assert answer.status_code == 400
            message = answer.json()["error"]["message"]
            assert "mcp__srv__search-by-title" in message
            assert f"{keyword} at q" in message


READ_CALL = written("qwen3_xml", [("write", {"path": "a", "content": "b"})])


def test_B5_a_call_at_the_end_of_open_thinking_counts(every: Everywhere) -> None:
    script = f"I need the file.\n{READ_CALL}{END}"
    said = every.ask(THINKING, script, tools=[WRITE])
    check(said, "", [("write", {"path": "a", "content": "b"})], "I need the file.")


@pytest.mark.parametrize(
    "thought",
    [
        f"I could say\n{READ_CALL}\nbut I do not.",
        f"I could say {READ_CALL}",
        f"I could say\n{READ_CALL.replace('<parameter=content>', '<parameter=else>')}",
    ],
)
def test_B5_a_call_that_is_only_mentioned_stays_thinking(every: Everywhere, thought: str) -> None:
    said = every.ask(THINKING, f"{thought}\n</think>\n\nNo.{END}", tools=[WRITE])
    check(said, "No.", [], thought)


SEVERAL = [
    ("write", {"path": "a", "content": "</parameter> in it"}),
    ("write", {"path": "a", "content": "</parameter> in it"}),
    ("now", {}),
]


@pytest.mark.parametrize("dialect", ["qwen3_xml", "hermes", "mistral_new", "gemma"])
def test_B7_names_come_once_and_pieces_join_to_json(every: Everywhere, dialect: str) -> None:
    marks = {
        "qwen3_xml": "<function=",
        "hermes": "<tool_call>",
        "mistral_new": "[TOOL_CALLS][ARGS]",
        "gemma": "<|tool_call>",
    }
    template = "{% if tools %}{{ tools }}{% endif %}{# " + marks[dialect] + " #}" + PLAIN
    tools = [WRITE, tool("now", {})]
    said = every.ask(template, written(dialect, SEVERAL) + END, tools=tools)
    check(said, "", SEVERAL)


def test_B7_a_required_call_is_whole_too(every: Everywhere) -> None:
    session, clients = every.at(TOOLED)
    session.start_anew(READ_CALL + END)
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [WRITE],
        "tool_choice": "required",
        "stream": True,
    }
    text = httpx.post(f"{clients.address}/v1/chat/completions", json=body).text
    deltas = [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: {")]
    calls = [c for d in deltas for c in d["choices"][0]["delta"].get("tool_calls", ())]
    assert {c["index"] for c in calls} == {0}
    assert [c["function"]["name"] for c in calls if "name" in c["function"]] == ["write"]
    assert json.loads("".join(c["function"]["arguments"] for c in calls)) == {
        "path": "a",
        "content": "b",
    }
    grammar = session.requests[0][1].grammar
    assert grammar is not None
    assert "start" in grammar.text


TYPES = tool(
    "set",
    {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "on": {"type": "boolean"},
        "what": {"type": "object"},
        "all": {"type": "array", "items": {"type": "integer"}},
        "name": TEXT,
        "maybe": {"type": ["string", "null"]},
    },
)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("n", "5", 5),
        ("x", "5.5", 5.5),
        ("on", "True", True),
        ("on", "false", False),
        ("what", '{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ("what", "{'a': True}", {"a": True}),
        ("all", "[1, 2]", [1, 2]),
        ("name", '{"a": 1}', '{"a": 1}'),  # a text stays a text
        ("name", "5", "5"),
        ("name", "True", "True"),
        ("maybe", "null", None),
        ("n", "five", "five"),  # cannot be read: the client says what is wrong
        ("undeclared", "[1]", "[1]"),
    ],
)
def test_B9_values_get_the_declared_type(
    every: Everywhere, name: str, raw: str, value: Any
) -> None:
    body = f"<parameter={name}>\n{raw}\n</parameter>\n</function>\n</tool_call>"
    xml = f"<tool_call>\n<function=set>\n{body}"
    check(every.ask(TOOLED, xml + END, tools=[TYPES]), "", [("set", {name: value})])
    # The same where the model writes JSON, with a string for the value.
    template = "{% if tools %}{{ tools }}{% endif %}{# <tool_call> #}" + PLAIN
    quoted = written("hermes", [("set", {name: raw})])
    expected = raw if name == "maybe" else value
    check(every.ask(template, quoted + END, tools=[TYPES]), "", [("set", {name: expected})])
