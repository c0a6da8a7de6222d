"""Tool calls through both APIs and their own packages, written down by the model's hand."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from serving import END, ScriptedSession, serving
from tiny_vocabulary import CHATML

CALLS = (
    'I look.\n<tool_call>\n{"name": "look", "arguments": {"place": "a < b"}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "go", "arguments": {{}}}}\n</tool_call>{END}'
)
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"place": {"type": "string"}}}
OPENAI_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in (("look", SCHEMA), ("go", {"type": "object", "properties": {}}))
]
ANTHROPIC_TOOLS: Any = [
    {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
    for tool in OPENAI_TOOLS
]
QUESTION: Any = [{"role": "user", "content": "Say it."}]


def test_openai() -> None:
    with (
        serving(ScriptedSession(CHATML, CALLS, CALLS, context=4096)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
    ):
        given: Any = {"model": "m", "messages": QUESTION, "tools": OPENAI_TOOLS}
        whole = client.chat.completions.create(**given).choices[0]
        with client.chat.completions.stream(**given) as stream:
            streamed = stream.get_final_completion().choices[0]
    for choice in (whole, streamed):
        assert choice.finish_reason == "tool_calls"
        calls = choice.message.tool_calls
        assert [call.function.name for call in calls] == ["look", "go"]
        assert [json.loads(c.function.arguments) for c in calls] == [{"place": "a < b"}, {}]
        assert len({call.id for call in calls} - {""}) == 2
        assert choice.message.content.strip() == "I look."


def test_anthropic() -> None:
    with (
        serving(ScriptedSession(CHATML, CALLS, CALLS, context=4096)) as address,
        anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as client,
    ):
        given: Any = {"model": "m", "max_tokens": 500, "messages": QUESTION}
        given["tools"] = ANTHROPIC_TOOLS
        whole = client.messages.create(**given)
        with client.messages.stream(**given) as stream:
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert message.stop_reason == "tool_use"
        text, look, go = message.content
        assert text.text.strip() == "I look."
        assert (look.name, look.input) == ("look", {"place": "a < b"})
        assert (go.name, go.input) == ("go", {})
        assert len({look.id, go.id} - {""}) == 2


@pytest.mark.parametrize(
    ("given", "mode", "name"),
    [
        (None, "auto", ""),
        ("auto", "auto", ""),
        ("required", "required", ""),
        ("none", "none", ""),
        ({"type": "function", "function": {"name": "look"}}, "required", "look"),
    ],
)
def test_every_choice(given: Any, mode: str, name: str) -> None:
    from octavo.server.wire.anthropic import MessagesBody
    from octavo.server.wire.openai import ChatBody

    read = ChatBody(messages=QUESTION, tool_choice=given, parallel_tool_calls=False).read()
    assert (read.tool_choice.mode, read.tool_choice.name) == (mode, name)
    assert not read.tool_choice.parallel
    kinds = {"required": {"type": "any"}, None: None}
    theirs = kinds.get(given, {"type": given}) if not isinstance(given, dict) else None
    if isinstance(given, dict):
        theirs = {"type": "tool", "name": name, "disable_parallel_tool_use": True}
    read = MessagesBody(messages=QUESTION, tool_choice=theirs).read()
    assert (read.tool_choice.mode, read.tool_choice.name) == (mode, name)
    assert read.tool_choice.parallel == (not isinstance(given, dict))


def test_wrong_choices_are_named() -> None:
    with (
        serving(ScriptedSession(CHATML)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
    ):
        absent = {"type": "function", "function": {"name": "absent"}}
        for choice, named in (
            ("always", "always"),
            ({"type": "x"}, "function"),
            (absent, "absent"),
        ):
            with pytest.raises(openai.BadRequestError, match=named):
                client.chat.completions.create(
                    model="m",
                    messages=QUESTION,
                    tools=OPENAI_TOOLS,
                    tool_choice=choice,  # type: ignore[call-overload]
                )
