"""Items of OpenAI's Responses API, read: what was said, thought, called and found -> messages.

Thinking, words and calls of one turn are separate items there and one message here.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from octavo.errors import RequestError
from octavo.server.wire.namespaces import joined
from octavo.server.wire.openai_messages import CUSTOM_ARGUMENT, first_text, result_of, text_of
from octavo.types import Message, ToolCall

Item = Mapping[str, Any]
_ROLES = ("user", "assistant", "system", "developer")


def read_items(given: str | Sequence[Item], find: Callable[[str], Item | None]) -> list[Message]:
    """The messages that items make; a plain text is a question.

    Args:
        find: the item that a reference means, by its id.

    Raises:
        RequestError: an item is not understood; it is numbered, and its type named.
    """
    if isinstance(given, str):
        return [Message("user", given)]
    turns = _Turns()
    for number, item in enumerate(given):
        try:
            if item.get("type") == "item_reference":
                item = _referred(item, find)
            turns.add(item)
        except RequestError as error:
            raise RequestError(f"input[{number}]: {error.message}", error.hint) from None
    return turns.messages()


class _Turns:
    """Messages so far, and the model's turn that is still open."""

    def __init__(self) -> None:
        self._done: list[Message] = []
        self._open: Message | None = None
        self._names: dict[str, str] = {}  # of called functions, by the call's id

    def add(self, item: Item) -> None:
        """One more item.

        Raises:
            RequestError: it is not understood.
        """
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message":
            self._add_message(item)
        elif kind == "reasoning":
            self._add_reasoning(_thinking(item))
        elif kind in ("function_call", "custom_tool_call"):
            self._add_call(item, is_custom=kind == "custom_tool_call")
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._close()
            id = first_text(item, "call_id")
            name = self._names.get(id, "")
            self._done.append(Message("tool", _output(item), tool_call_id=id, name=name))
        elif kind != "additional_tools":  # those are no part of the conversation
            raise RequestError(
                f"the type {kind!r} is not understood",
                "Use message, reasoning, function_call, function_call_output, custom_tool_call, "
                "custom_tool_call_output, additional_tools or item_reference.",
            )

    def messages(self) -> list[Message]:
        """All of them."""
        self._close()
        return self._done

    def _add_message(self, item: Item) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise RequestError(f"role is {role!r}", f"Use {', '.join(_ROLES)}.")
        text = text_of(item.get("content"))
        if role != "assistant":
            self._close()
            self._done.append(Message(role, text))
            return
        if self._open is not None and (self._open.content or self._open.tool_calls):
            self._close()
        self._open = replace(self._open or Message("assistant"), content=text)

    def _add_reasoning(self, text: str) -> None:
        if self._open is not None and (self._open.content or self._open.tool_calls):
            self._close()
        sofar = self._open or Message("assistant")
        joined = f"{sofar.reasoning}\n{text}" if sofar.reasoning else text
        self._open = replace(sofar, reasoning=joined)

    def _add_call(self, item: Item, is_custom: bool) -> None:
        name, id = first_text(item, "name"), first_text(item, "call_id", "id")
        if not name:
            raise RequestError("the call has no name", "Give it one.")
        given = item.get(CUSTOM_ARGUMENT if is_custom else "arguments")
        if is_custom:
            given = {CUSTOM_ARGUMENT: given or ""}
        text = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
        sofar = self._open or Message("assistant")
        name = self._names[id] = joined(name, item.get("namespace"))
        self._open = replace(sofar, tool_calls=(*sofar.tool_calls, ToolCall(name, text, id)))

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open)
        self._open = None


def _referred(item: Item, find: Callable[[str], Item | None]) -> Item:
    id = first_text(item, "id")
    found = find(id)
    if found is None:
        raise RequestError(f"there is no item {id!r}", "It was not stored, or is no longer.")
    return found


def _output(item: Item) -> str:
    """What a tool gave, as text."""
    given = item.get("output")
    if given is None or isinstance(given, (str, list)):
        return result_of(given)
    return json.dumps(given, ensure_ascii=False)


def hidden(text: str) -> str:
    """Thinking in the form of `encrypted_content`, which clients carry and do not read."""
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


def _thinking(item: Item) -> str:
    """The text of a reasoning item, from the first place where there is one."""
    for field in ("content", "summary"):
        parts = item.get(field)
        parts = parts if isinstance(parts, list) else ()
        texts = [first_text(part, "text") for part in parts if isinstance(part, Mapping)]
        if any(texts):
            return "\n".join(texts)
    try:
        return base64.b64decode(first_text(item, "encrypted_content"), validate=True).decode()
    except (binascii.Error, ValueError):  # another server's
        return ""
