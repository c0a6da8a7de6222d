"""LangChain's chat model as a client: chats, streams, tools, structured answers."""

from __future__ import annotations

from typing import Any

import pytest

from serving import END, PLAIN, ScriptedSession, serving

langchain_openai = pytest.importorskip(
    "langchain_openai", reason="needs langchain-openai: pip install octavo[clients]"
)

HERMES = PLAIN.replace(
    "{%- for",
    "{%- if tools %}<tools>{{ tools | tojson }}</tools> <tool_call>\n"
    '{"name": "x", "arguments": {}}\n</tool_call>{% endif %}{%- for',
    1,
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}


def model(address: str, **options: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        model="scripted", base_url=f"{address}/v1", api_key="none", max_retries=0, **options
    )


def test_a_chat() -> None:
    session = ScriptedSession(PLAIN, "Good day." + END)
    with serving(session) as address:
        answer = model(address).invoke([("system", "Be short."), ("human", "Hi")])
    assert answer.content == "Good day."
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["output_tokens"] > 0
    assert [message.role for message in session.asked[0].messages] == ["system", "user"]


def test_a_stream_is_the_whole_answer_with_usage() -> None:
    with serving(ScriptedSession(PLAIN, "Good day to you." + END)) as address:
        pieces = list(model(address, stream_usage=True).stream("Hi"))
    assert "".join(piece.content for piece in pieces) == "Good day to you."
    assert len([piece for piece in pieces if piece.content]) > 1
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece
    assert total.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_tool_call_and_its_result(is_streamed: bool) -> None:
    session = ScriptedSession(HERMES, CALL + END, "Rain." + END, context=4096)
    with serving(session) as address:
        bound = model(address).bind_tools([TOOL])
        history: list[Any] = [("human", "Weather in Oslo?")]
        if is_streamed:
            pieces = list(bound.stream(history))
            answer = pieces[0]
            for piece in pieces[1:]:
                answer += piece
        else:
            answer = bound.invoke(history)
        (call,) = answer.tool_calls
        assert (call["name"], call["args"]) == ("weather", {"city": "Oslo", "days": 2})
        result = {"role": "tool", "tool_call_id": call["id"], "content": "wet"}
        last = bound.invoke([*history, answer, result])
    assert last.content == "Rain."
    assert session.asked[1].messages[-1].role == "tool"


def test_structured_output() -> None:
    session = ScriptedSession(PLAIN, '{"city": "Oslo", "days": 2}' + END)
    schema = {"title": "Trip", **TOOL["parameters"]}  # type: ignore[dict-item]
    with serving(session) as address:
        found = model(address).with_structured_output(schema, method="json_schema").invoke("Where?")
    assert found == {"city": "Oslo", "days": 2}
