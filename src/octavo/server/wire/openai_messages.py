"""OpenAI's messages, tools and choices, read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octavo.errors import RequestError
from octavo.server.wire.body import left_out
from octavo.types import Message, ToolCall, ToolChoice

LOG = logging.getLogger("octavo.server")

CUSTOM_ARGUMENT = "input"  # of a custom tool, whose argument is one text
_CUSTOM_SCHEMA = {
    "type": "object",
    "properties": {CUSTOM_ARGUMENT: {"type": "string"}},
    "required": [CUSTOM_ARGUMENT],
}
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def read_messages(given: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Messages of a chat.

    Raises:
        RequestError: a role, part or call is not understood; the message is numbered.
    """
    names: dict[str, str] = {}  # of called functions, by the call's id
    for number, message in enumerate(given):
        try:
            read = _message(message)
        except RequestError as error:
            raise RequestError(f"messages[{number}]: {error.message}", error.hint) from None
        names |= {call.id: call.name for call in read.tool_calls}
        if read.role == "tool" and not read.name:
            name = names.get(read.tool_call_id, "")
            read = Message("tool", read.content, tool_call_id=read.tool_call_id, name=name)
        yield read


def read_tools(given: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tool declarations as templates know them: the function below the key `function`.

    Some clients write its fields beside the type. A custom tool becomes a function with one text.
    Tools that run on OpenAI's servers are left out, with a line in the log.

    Raises:
        RequestError: a tool has no name.
    """
    for number, tool in enumerate(given):
        kind = tool.get("type", "function")
        if kind not in ("function", "custom"):
            LOG.info("a tool of the type %s was left out: it runs elsewhere", kind)
            continue
        inner = tool.get(kind)
        if kind == "function" and isinstance(inner, Mapping):
            yield dict(tool)  # as it is: the model sees every word of it
            continue
        declared = inner if isinstance(inner, Mapping) else tool
        if not isinstance(declared.get("name"), str):
            raise RequestError(f"tools[{number}] has no name", "Give it one.")
        schema = declared.get("parameters") or {"type": "object", "properties": {}}
        function = {
            "name": declared["name"],
            "description": _description(declared),
            "parameters": _CUSTOM_SCHEMA if kind == "custom" else schema,
        }
        yield {"type": "function", "function": function}


def _description(tool: Mapping[str, Any]) -> str:
    """What the tool does; of a custom one also the grammar that its text follows."""
    text = first_text(tool, "description")
    form = tool.get("format")
    if isinstance(form, Mapping) and isinstance(form.get("definition"), str):
        text += f"\n\nThe text follows this {form.get('syntax')} grammar:\n{form['definition']}"
    return text


def read_choice(given: str | Mapping[str, Any] | None, parallel: bool) -> ToolChoice:
    """`tool_choice`: a word, or the one function that has to be called.

    Raises:
        RequestError: another word or form.
    """
    if given is None or isinstance(given, str):
        mode: Any = given or "auto"
        return ToolChoice(mode, parallel=parallel)
    kind = given.get("type")
    inner = given.get(kind, given) if isinstance(kind, str) else given
    if kind == "allowed_tools" and isinstance(inner, Mapping):
        return ToolChoice(inner.get("mode", "auto"), parallel=parallel)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if kind not in ("function", "custom") or not isinstance(name, str) or not name:
        raise RequestError(
            "tool_choice names no function", "Use auto, required, none, or type and function.name."
        )
    return ToolChoice("required", name, parallel)


def allowed_tools(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None
) -> list[Mapping[str, Any]]:
    """The tools that the choice leaves: all, unless it is a list of allowed ones."""
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return list(tools)
    inner = choice.get("allowed_tools", choice)
    listed = inner.get("tools") if isinstance(inner, Mapping) else None
    listed = listed if isinstance(listed, list) else ()
    names = [_name(tool) for tool in listed if isinstance(tool, Mapping)]
    return [tool for tool in tools if _name(tool) in names]


def _name(tool: Mapping[str, Any]) -> Any:
    kind = tool.get("type", "function")
    inner = tool.get(kind) if isinstance(kind, str) else None
    return (inner if isinstance(inner, Mapping) else tool).get("name")


def _message(given: Mapping[str, Any]) -> Message:
    role = given.get("role")
    if role == "function":
        role = "tool"
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise RequestError(f"role is {role!r}", "Use system, developer, user, assistant or tool.")
    calls = given.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RequestError("tool_calls is no list", "Send a list of calls.")
    calls = [*calls]
    if old := given.get("function_call"):
        calls.append({"function": old})
    content = given.get("content")
    return Message(
        role=role,
        content=result_of(content) if role == "tool" else text_of(content),
        reasoning=first_text(given, "reasoning_content", "reasoning", "thinking"),
        tool_calls=tuple(_call(call) for call in calls),
        tool_call_id=first_text(given, "tool_call_id"),
        name=first_text(given, "name"),
    )


def text_of(content: Any) -> str:
    """The text of a message's content: a string, parts, or nothing.

    Raises:
        RequestError: a part is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestError("content is no text", "Use a string or a list of text parts.")
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if kind not in _TEXT_PARTS:
            raise RequestError(
                f"a part of the content is {kind!r}", "This model reads text only: send text parts."
            )
        if not isinstance(text, str):
            raise RequestError("a part of the content has no text", "Give it a string as text.")
        texts.append(text)
    return "\n".join(texts)


def result_of(content: Any) -> str:
    """What a tool gave, as text. What is none is named, so that the agent can go on.

    Raises:
        RequestError: it is neither a text nor a list of parts.
    """
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(_text_or_note(part) for part in content)


def _text_or_note(part: Any) -> str:
    try:
        return text_of([part])
    except RequestError:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        return left_out(kind)


def first_text(given: Mapping[str, Any], *names: str) -> str:
    return next((given[n] for n in names if isinstance(given.get(n), str) and given[n]), "")


def _call(given: Any) -> ToolCall:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError("a tool call has no function name", "It belongs in function.name.")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(function["name"], text, first_text(given, "id"))
