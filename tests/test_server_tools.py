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


LONG = {"place": "x < y, " * 20 + 'é "quoted" \\ end'}
LONG_CALL = (
    f"<tool_call>\n{json.dumps({'name': 'look', 'arguments': LONG})}\n</tool_call>\n"
    f'<tool_call>\n{{"name": "go", "arguments": {{}}}}\n</tool_call>{END}'
)


def test_arguments_stream_in_parts_in_all_apis() -> None:
    with (
        serving(ScriptedSession(CHATML, *[LONG_CALL] * 4, context=4096)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
        anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as other,
    ):
        given: Any = {"model": "m", "messages": QUESTION, "tools": OPENAI_TOOLS, "stream": True}
        chunks = list(client.chat.completions.create(**given))
        pieces = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
        look = [c for c in pieces if c.index == 0]
        assert [c.function.name for c in look if c.function.name] == ["look"]
        assert len([c for c in look if c.id]) == 1
        assert len(look) > 20
        assert json.loads("".join(c.function.arguments for c in look)) == LONG
        assert [json.loads("".join(c.function.arguments for c in pieces if c.index == 1))] == [{}]
        given |= {"max_tokens": 500, "tools": ANTHROPIC_TOOLS}
        deltas = [e for e in other.messages.create(**given) if e.type == "content_block_delta"]
        texts = [e.delta.partial_json for e in deltas if e.index == 0]
        assert len(texts) > 20
        assert json.loads("".join(texts)) == LONG
        del given["stream"]
        with other.messages.stream(**given) as stream:
            assert [block.input for block in stream.get_final_message().content] == [LONG, {}]
        flat: Any = [{"type": "function", **tool["function"]} for tool in OPENAI_TOOLS]
        events = list(client.responses.create(model="m", input="x", tools=flat, stream=True))
    parts: Any = [e for e in events if e.type == "response.function_call_arguments.delta"]
    assert len([e for e in parts if e.output_index == 0]) > 20
    done: Any = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert [json.loads(e.arguments) for e in done] == [LONG, {}]
    for number, event in enumerate(done):
        assert "".join(e.delta for e in parts if e.output_index == number) == event.arguments


def test_a_call_that_was_cut_off_ends_the_stream_as_length() -> None:
    options: Any = {"model": "m", "messages": QUESTION}
    with (
        serving(ScriptedSession(CHATML, *[LONG_CALL] * 3, context=4096)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
        anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as other,
    ):
        chunks = list(
            client.chat.completions.create(
                **options, tools=OPENAI_TOOLS, stream=True, max_tokens=40
            )
        )
        assert chunks[-1].choices[0].finish_reason == "length"
        assert not any(chunk.choices[0].delta.content for chunk in chunks)
        with other.messages.stream(**options, tools=ANTHROPIC_TOOLS, max_tokens=40) as stream:
            assert stream.get_final_message().stop_reason == "max_tokens"
        whole = client.chat.completions.create(**options, tools=OPENAI_TOOLS, max_tokens=40)
        assert not whole.choices[0].message.tool_calls
