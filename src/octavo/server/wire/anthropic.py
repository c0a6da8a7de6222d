"""Anthropic's requests, read: bodies -> `ChatRequest`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from octavo.errors import RequestError
from octavo.server.wire.body import ThinkingBody, left_out, response_grammar
from octavo.server.wire.declared import (
    ClaudeChoice,
    ClaudeTools,
    Format,
    System,
    Turns,
    add_ranges,
)
from octavo.types import ChatRequest, Message, SamplingParams, ToolCall, ToolChoice, ToolMode

LOG = logging.getLogger("octavo.server")


class MessagesBody(ThinkingBody):
    """`/v1/messages` and `/v1/messages/count_tokens`."""

    model_config = ConfigDict(json_schema_extra=add_ranges)

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    messages: Turns = Field(min_length=1)
    system: System = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    tools: ClaudeTools = None
    tool_choice: ClaudeChoice = None
    output_config: dict[str, Any] | None = None
    output_format: Format = None

    def read(self) -> ChatRequest:
        """What is asked of the model.

        Raises:
            RequestError: a message or a value is wrong; it is named.
        """
        config = self.output_config or {}
        if self.reasoning_effort is None and isinstance(config.get("effort"), str):
            self.reasoning_effort = config["effort"]
        thinking = self.read_thinking()
        plain = {name: getattr(self, name) for name in ("max_tokens", "temperature", "top_p")}
        plain["top_k"] = self.top_k
        given = {name: value for name, value in plain.items() if value is not None}
        return ChatRequest(
            messages=tuple(self._messages()),
            params=SamplingParams(
                **given, grammar=response_grammar(self.output_format or config.get("format"))
            ),
            tools=tuple(read_tools(self.tools or ())),
            tool_choice=read_choice(self.tool_choice or {}),
            stop=tuple(self.stop_sequences or ()),
            thinking=thinking.on,
            thinking_budget=thinking.budget,
            template_args=thinking.template_args,
            call_parts=bool(self.stream),
        )

    def _messages(self) -> Iterator[Message]:
        if system := _system(self.system):
            yield Message("system", system)
        names: dict[str, str] = {}  # of called functions, by the call's id
        for number, message in enumerate(self.messages):
            try:
                yield from _read(message, names)
            except RequestError as error:
                raise RequestError(f"messages[{number}]: {error.message}", error.hint) from None


def read_tools(given: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tool declarations as OpenAI has them. Tools that only Anthropic's servers run are left out.

    Raises:
        RequestError: a tool has no name, or is declared as OpenAI has it.
    """
    for number, tool in enumerate(given):
        if tool.get("type") == "function" and "input_schema" not in tool:
            raise RequestError(
                f"tools[{number}] is declared as in OpenAI's API",
                "Give it name, description and input_schema, or use /v1/chat/completions.",
            )
        if tool.get("type", "custom") != "custom" and "input_schema" not in tool:
            LOG.info("a tool of the type %s was left out: it runs elsewhere", tool["type"])
            continue
        if not isinstance(tool.get("name"), str):
            raise RequestError(f"tools[{number}] has no name", "Give it one.")
        function = {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "parameters": tool.get("input_schema") or {"type": "object", "properties": {}},
        }
        yield {"type": "function", "function": function}


_MODES: Mapping[str, ToolMode] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


def read_choice(given: Mapping[str, Any]) -> ToolChoice:
    """`tool_choice` in our words.

    Raises:
        RequestError: another type, or a tool without its name.
    """
    kind, name = given.get("type", "auto"), _field(given, "name")
    if not isinstance(kind, str) or kind not in _MODES or (kind == "tool" and not name):
        raise RequestError(f"tool_choice is {kind!r}", "Use auto, any, none, or tool with a name.")
    parallel = given.get("disable_parallel_tool_use") is not True
    return ToolChoice(_MODES[kind], name if kind == "tool" else "", parallel)


def _system(given: str | Sequence[Mapping[str, Any]] | None) -> str:
    """The text of the system prompt, as it was sent."""
    blocks = [given] if isinstance(given, str) else [_text_or_note(block) for block in given or ()]
    return "\n\n".join(block for block in blocks if block)


def _read(given: Mapping[str, Any], names: dict[str, str]) -> Iterator[Message]:
    """One message; results of tools become messages of their own, in their place."""
    role, content = given.get("role"), given.get("content")
    if role not in ("user", "assistant", "system"):
        raise RequestError(f"role is {role!r}", "Use user or assistant.")
    if isinstance(content, str):
        yield Message(role, content)
    elif not isinstance(content, list):
        raise RequestError("content is missing", "Use a string or a list of blocks.")
    elif role == "assistant":
        yield _assistant([block for block in content if isinstance(block, dict)], names)
    else:
        yield from _parts(role, content, names)


def _assistant(blocks: Sequence[Mapping[str, Any]], names: dict[str, str]) -> Message:
    calls = []
    for block in blocks:
        if block.get("type") == "tool_use" and isinstance(block.get("name"), str):
            call = ToolCall(
                block["name"], json.dumps(block.get("input") or {}), _field(block, "id")
            )
            names[call.id] = call.name
            calls.append(call)
    return Message(
        "assistant",
        content="".join(_text(block) for block in blocks if block.get("type") == "text"),
        reasoning="".join(
            str(block.get("thinking", "")) for block in blocks if block.get("type") == "thinking"
        ),
        tool_calls=tuple(calls),
    )


def _parts(role: str, blocks: Sequence[Any], names: Mapping[str, str]) -> Iterator[Message]:
    texts: list[str] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            if texts:
                yield Message(role, "\n\n".join(texts))
                texts = []
            call_id = _field(block, "tool_use_id")
            text = _result(block.get("content"))
            yield Message("tool", text, tool_call_id=call_id, name=names.get(call_id, ""))
        elif kind == "image":
            raise RequestError("there is an image", "This model reads text only.")
        elif text := _text_or_note(block):
            texts.append(text)
    if texts or not blocks:
        yield Message(role, "\n\n".join(texts))


def _result(content: Any) -> str:
    """What a tool gave, as text. What is none is named, so that the agent can go on."""
    if not isinstance(content, list):
        return "" if content is None else str(content)
    return "\n".join(text for text in map(_text_or_note, content) if text)


def _text_or_note(block: Any) -> str:
    if not isinstance(block, dict):
        return left_out(type(block).__name__)
    kind = block.get("type")
    return _text(block) or ("" if kind == "text" else left_out(kind))


def _text(block: Mapping[str, Any]) -> str:
    """The text of a block, as far as it holds any."""
    source = block.get("source")
    if block.get("type") == "document" and isinstance(source, dict):
        return _inner(source.get("data" if source.get("type") == "text" else "content"))
    if block.get("type") == "search_result":
        found = _inner(block.get("content"))
        return "\n".join(text for text in (_field(block, "title"), found) if text) if found else ""
    return _field(block, "text")


def _inner(content: Any) -> str:
    """What stands inside of a document or a find: a text, or blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    return "\n".join(_text_or_note(block) for block in blocks)


def _field(block: Mapping[str, Any], name: str) -> str:
    """A field that is a text; "" where it is missing or something else."""
    value = block.get(name)
    return value if isinstance(value, str) else ""
