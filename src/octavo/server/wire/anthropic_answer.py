"""Anthropic's answers, written: messages, and the events of a stream in their strict order."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from octavo.chat import Answer
from octavo.server.wire.openai_answer import new_call_id
from octavo.text.split import CallPart, Content, Event, Reasoning, ToolCalled
from octavo.types import ToolCall, Usage

SIGNATURE = "octavo"  # any text: clients only send it back
Named = tuple[str, dict[str, Any]]  # (name of the event, its data)


def usage_of(usage: Usage) -> dict[str, int]:
    """Counts; those from the cache are not among the input tokens."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def stop_reason(answer: Answer) -> str:
    """Why an answer ended, in Anthropic's words."""
    if answer.finish_reason == "length":
        return "max_tokens"
    if answer.stop_text is not None:
        return "stop_sequence"
    return "tool_use" if answer.tool_calls else "end_turn"


class MessageWriter:
    """One response of `/v1/messages`, streamed or whole."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._id = f"msg_{secrets.token_hex(12)}"
        self._index = -1
        self._open = ""  # the kind of the block that is open; of a call that comes in parts its id

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The message."""
        blocks: list[dict[str, Any]] = []
        if answer.reasoning:
            thinking = {"thinking": answer.reasoning, "signature": SIGNATURE}
            blocks.append({"type": "thinking", **thinking})
        if answer.content or not (blocks or answer.tool_calls):
            blocks.append({"type": "text", "text": answer.content})
        blocks += [_tool_use(call, _input(call)) for call in answer.tool_calls]
        message = self._message(blocks, usage_of(answer.usage))
        message["stop_reason"] = stop_reason(answer)
        message["stop_sequence"] = answer.stop_text
        return message | _remark(answer)

    def begin(self, prompt_tokens: int) -> Iterator[Named]:
        """The first events, before anything is known of the answer."""
        usage = usage_of(Usage(prompt_tokens=prompt_tokens))
        yield "message_start", {"message": self._message([], usage)}
        yield "ping", {}

    def event(self, event: Event) -> Iterator[Named]:
        """The events of one piece of the answer: its block is opened before it."""
        if isinstance(event, Content):
            yield from self._into("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": event.text})
        elif isinstance(event, Reasoning):
            block = {"type": "thinking", "thinking": "", "signature": ""}
            yield from self._into("thinking", block)
            yield self._delta({"type": "thinking_delta", "thinking": event.text})
        elif isinstance(event, CallPart):
            block = _tool_use(ToolCall(event.name, "", event.id), {})
            yield from self._into(event.id, block)
            yield self._delta({"type": "input_json_delta", "partial_json": event.text})
        elif isinstance(event, ToolCalled) and (event.call.id or None) != self._open:
            yield from self._close()
            yield from self._into("tool_use", _tool_use(event.call, {}))
            text = json.dumps(_input(event.call), ensure_ascii=False)
            yield self._delta({"type": "input_json_delta", "partial_json": text})
            yield from self._close()

    def end(self, answer: Answer) -> Iterator[Named]:
        """The last events."""
        if self._index < 0 and not self._open:
            yield from self._into("text", {"type": "text", "text": ""})
        yield from self._close()
        delta = {"stop_reason": stop_reason(answer), "stop_sequence": answer.stop_text}
        data = {"delta": delta, "usage": usage_of(answer.usage)}
        yield "message_delta", data | _remark(answer)
        yield "message_stop", {}

    def _message(self, blocks: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": blocks,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _into(self, kind: str, block: dict[str, Any]) -> Iterator[Named]:
        """Open a block of this kind, unless the last one is it."""
        if self._open == kind:
            return
        yield from self._close()
        self._index += 1
        self._open = kind
        yield "content_block_start", {"index": self._index, "content_block": block}

    def _close(self) -> Iterator[Named]:
        if not self._open:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        self._open = ""
        yield "content_block_stop", {"index": self._index}

    def _delta(self, delta: dict[str, Any]) -> Named:
        return "content_block_delta", {"index": self._index, "delta": delta}


def _tool_use(call: ToolCall, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id or new_call_id(), "name": call.name, "input": given}


def _input(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; what is none is handed on under one name."""
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}


def _remark(answer: Answer) -> dict[str, Any]:
    return {"stopped_thinking": True} if answer.stopped_thinking else {}
