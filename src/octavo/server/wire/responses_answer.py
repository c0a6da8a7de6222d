"""OpenAI's Responses API, written: responses, and the events of a stream in their order."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from octavo.chat import Answer
from octavo.server.faults import Fault
from octavo.server.wire.items import hidden
from octavo.server.wire.namespaces import Origin
from octavo.server.wire.openai_answer import Piece, chat_logprobs, new_call_id
from octavo.server.wire.openai_messages import CUSTOM_ARGUMENT
from octavo.server.wire.responses import ResponsesBody
from octavo.text.split import CallPart, Content, Event, Reasoning, ToolCalled
from octavo.types import ToolCall

Named = tuple[str, dict[str, Any]]  # (name of the event, its data)


@dataclass(frozen=True)
class Channel:
    """How the text of a kind of item is streamed.

    `field` of the item is a list of parts of the type `part`, of which there is one.
    """

    field: str
    part: str
    part_event: str
    text_event: str
    index: str

    def make(self, text: str) -> dict[str, Any]:
        return {"type": self.part, "text": text}


TEXT = Channel("content", "output_text", "content_part", "output_text", "content_index")
THOUGHT = Channel("content", "reasoning_text", "content_part", "reasoning_text", "content_index")
SUMMARY = Channel(
    "summary",
    "summary_text",
    "reasoning_summary_part",
    "reasoning_summary_text",
    "summary_index",
)


def usage_of(answer: Answer) -> dict[str, Any]:
    """Counts, in this API's words."""
    usage = answer.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class ResponseWriter:
    """One response of `/v1/responses`, streamed or whole.

    Args:
        answer: fills while the response is made.
        piece: the bytes of a token, if log-probabilities are wanted.
    """

    def __init__(
        self, model: str, body: ResponsesBody, answer: Answer, piece: Piece | None = None
    ) -> None:
        self.id = f"resp_{secrets.token_hex(24)}"
        self._model = model
        self._body = body
        self._answer = answer
        self._piece = piece
        self._created = int(time.time())
        self._items: list[dict[str, Any]] = []
        self._open: Channel | str | None = None  # of the last item; of a call its id
        self._n_events = 0
        self._n_tokens = 0
        self._origins = body.origins()
        self._thought = SUMMARY if body.wants_summary else THOUGHT

    def whole(self) -> dict[str, Any]:
        """The response."""
        answer = self._answer
        if answer.reasoning:
            self._items.append(self._reasoning(answer.reasoning, "completed"))
        if answer.content or not answer.tool_calls:
            self._items.append(self._message(answer.content, self._new_logprobs(), self._status))
        self._items += [self._call(call, "completed") for call in answer.tool_calls]
        return self.response()

    def response(self) -> dict[str, Any]:
        """The response with the items that are closed, when the answer is whole."""
        incomplete = {"reason": "max_output_tokens"} if self._status == "incomplete" else None
        body = self._response(self._status, list(self._items), usage_of(self._answer))
        body |= {"incomplete_details": incomplete, "completed_at": int(time.time())}
        return body | ({"stopped_thinking": True} if self._answer.stopped_thinking else {})

    def begin(self) -> Iterator[Named]:
        """The first events, before anything is known of the answer."""
        for name in ("created", "in_progress"):
            yield self._event(name, {"response": self._response("in_progress", [])})

    def event(self, event: Event) -> Iterator[Named]:
        """The events of one piece of the answer: its item is opened before it."""
        if isinstance(event, Content):
            yield from self._into(TEXT)
            yield self._text(TEXT, event.text)
        elif isinstance(event, Reasoning):
            yield from self._into(self._thought)
            yield self._text(self._thought, event.text)
        elif isinstance(event, CallPart):
            if not self._tool(event.name).is_custom:
                yield from self._part_of_call(event)
        elif isinstance(event, ToolCalled):
            yield from self._whole_call(event.call)

    def end(self) -> Iterator[Named]:
        """The last events of an answer."""
        if self._answer.reasoning and not self._items:
            yield from self._into(self._thought)
        has_answer = any(item["type"] != "reasoning" for item in self._items)
        if not has_answer:
            yield from self._into(TEXT)
        yield from self._close(self._status)
        yield self._event(self._status, {"response": self.response()})

    def fail(self, fault: Fault) -> Iterator[Named]:
        """The last events of an answer that failed."""
        yield from self._close("incomplete")
        error = {"code": fault.code or "server_error", "message": fault.message}
        failed = self._response("failed", self._items) | {"error": error}
        yield self._event("failed", {"response": failed})

    @property
    def _status(self) -> str:
        return "incomplete" if self._answer.finish_reason == "length" else "completed"

    def _response(
        self, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": output,
            "usage": usage,
            **self._body.echo(),
        }

    # Items.

    def _reasoning(self, text: str, status: str) -> dict[str, Any]:
        item: dict[str, Any] = {"id": _id("rs"), "type": "reasoning", "summary": [], "content": []}
        item |= {"encrypted_content": None, "status": status}
        if text:
            item[self._thought.field] = [self._thought.make(text)]
            if self._body.wants_hidden_thinking:
                item["encrypted_content"] = hidden(text)
        return item

    def _message(self, text: str, logprobs: list[Any], status: str) -> dict[str, Any]:
        part = TEXT.make(text) | {"annotations": [], "logprobs": logprobs}
        head = {"id": _id("msg"), "type": "message", "role": "assistant", "status": status}
        return head | {"content": [part]}

    def _call(self, call: ToolCall, status: str) -> dict[str, Any]:
        tool = self._tool(call.name)
        shared = {"call_id": call.id or new_call_id(), "name": tool.name, "status": status}
        if tool.namespace:
            shared["namespace"] = tool.namespace
        if tool.is_custom:
            text = _custom_text(call.arguments)
            return {"id": _id("ctc"), "type": "custom_tool_call", **shared, "input": text}
        call_item = {"id": _id("fc"), "type": "function_call", **shared}
        return call_item | {"arguments": call.arguments}

    def _tool(self, name: str) -> Origin:
        """The tool that the model means by this name; one that nobody declared is called so."""
        return self._origins.get(name) or Origin(name)

    # Events of items.

    def _into(self, channel: Channel) -> Iterator[Named]:
        """Open an item of this kind, unless the last one is it."""
        if self._open is channel:
            return
        yield from self._close()
        item = self._message("", [], "in_progress") if channel is TEXT else self._reasoning("", "")
        part = (item[channel.field] or [channel.make("")])[0]
        item |= {channel.field: [], "status": "in_progress"}
        self._items.append(item)
        self._open = channel
        yield self._item_event("output_item.added", item=dict(item))
        item[channel.field] = [part]
        yield self._part_event(f"{channel.part_event}.added", channel, part=dict(part))

    def _text(self, channel: Channel, text: str) -> Named:
        part = self._items[-1][channel.field][0]
        part["text"] += text
        more: dict[str, Any] = {"delta": text}
        if channel is TEXT:
            more["logprobs"] = self._new_logprobs()
            part["logprobs"] = part["logprobs"] + more["logprobs"]
        return self._part_event(f"{channel.text_event}.delta", channel, **more)

    def _part_of_call(self, part: CallPart) -> Iterator[Named]:
        if self._open != part.id:
            yield from self._close()
            item = self._call(ToolCall(part.name, "", part.id), "in_progress")
            self._items.append(item)
            self._open = part.id
            yield self._item_event("output_item.added", item=dict(item))
        if part.text:
            self._items[-1]["arguments"] += part.text
            yield self._item_event("function_call_arguments.delta", delta=part.text)

    def _whole_call(self, call: ToolCall) -> Iterator[Named]:
        if not self._tool(call.name).is_custom:
            if not call.id or self._open != call.id:
                call = ToolCall(call.name, call.arguments, call.id or new_call_id())
                yield from self._part_of_call(CallPart(call.id, call.name, call.arguments))
            yield from self._close()
            return
        yield from self._close()
        item = self._call(call, "in_progress")
        text, item["input"] = item["input"], ""
        self._items.append(item)
        yield self._item_event("output_item.added", item=dict(item))
        item |= {"input": text, "status": "completed"}
        yield self._item_event("custom_tool_call_input.delta", delta=text)
        yield self._item_event("custom_tool_call_input.done", input=text)
        yield self._item_event("output_item.done", item=dict(item))

    def _close(self, status: str = "completed") -> Iterator[Named]:
        """Close the item that is open."""
        channel, self._open = self._open, None
        if channel is None:
            return
        item = self._items[-1]
        item["status"] = status
        if isinstance(channel, Channel):
            part = item[channel.field][0]
            done: dict[str, Any] = {"text": part["text"]}
            if channel is TEXT:
                done["logprobs"] = part["logprobs"]
            elif self._body.wants_hidden_thinking:
                item["encrypted_content"] = hidden(part["text"])
            yield self._part_event(f"{channel.text_event}.done", channel, **done)
            yield self._part_event(f"{channel.part_event}.done", channel, part=dict(part))
        else:
            more = {"arguments": item["arguments"], "name": item["name"]}
            yield self._item_event("function_call_arguments.done", **more)
        yield self._item_event("output_item.done", item=dict(item))

    def _part_event(self, name: str, channel: Channel, /, **data: Any) -> Named:
        return self._item_event(name, **{channel.index: 0}, **data)

    def _item_event(self, name: str, /, **data: Any) -> Named:
        place: dict[str, Any] = {"output_index": len(self._items) - 1}
        if "item" not in data:
            place["item_id"] = self._items[-1]["id"]
        return self._event(name, place | data)

    def _event(self, name: str, data: dict[str, Any]) -> Named:
        number = self._n_events
        self._n_events += 1
        return f"response.{name}", {"sequence_number": number, **data}

    def _new_logprobs(self) -> list[Any]:
        """Of the tokens that were made since the last call."""
        if self._piece is None:
            return []
        new = self._answer.tokens[self._n_tokens :]
        self._n_tokens += len(new)
        entries: list[Any] = chat_logprobs(new, self._piece)["content"]
        return entries


def _custom_text(arguments: str) -> str:
    """The one text of a custom tool's call."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    text = value.get(CUSTOM_ARGUMENT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(24)}"
