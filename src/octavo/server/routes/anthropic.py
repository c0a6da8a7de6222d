"""Anthropic's API: messages, and how many tokens they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.chat import Answer
from octavo.errors import OctavoError
from octavo.server import sse
from octavo.server.asking import ask, awake, prompt_of, resident_of
from octavo.server.encoding import Json
from octavo.server.faults import fault_of
from octavo.server.feed import Feed
from octavo.server.record import Record
from octavo.server.schema import answers
from octavo.server.wire.answers import ClaudeCount, ClaudeMessage
from octavo.server.wire.anthropic import MessagesBody
from octavo.server.wire.anthropic_answer import MessageWriter

router = APIRouter(tags=["Anthropic"])


@router.post("/v1/messages", responses=answers(ClaudeMessage, streams=True))
async def messages(body: MessagesBody, request: Request) -> Response:
    """Answer a chat."""
    feed = await ask(request, body.read())
    writer = MessageWriter(resident_of(request).name)
    if not body.stream:
        (answer,) = await feed.whole(request)
        return Json(writer.whole(answer))
    record = Record.of(request)

    def gone() -> None:
        record.finish = "gone"

    return sse.EventStream(
        _events(feed, writer, record), on_end=feed.cancel, on_gone=gone, ping=_event("ping", {})
    )


@router.post("/v1/messages/count_tokens", responses=answers(ClaudeCount))
async def count_tokens(body: MessagesBody, request: Request) -> Json:
    """Tokens of the prompt that these messages make. Does not wait for any answer."""
    chat = body.read()
    resident = await awake(request)
    prompt = await anyio.to_thread.run_sync(prompt_of, resident, chat)
    return Json({"input_tokens": len(prompt.ids)})


async def _events(feed: Feed, writer: MessageWriter, record: Record) -> AsyncIterator[bytes]:
    """The stream. It begins at once, however long the prompt takes."""
    yield _joined(writer.begin(feed.prompt_tokens))
    try:
        async for _, event in feed.events():
            if isinstance(event, Answer):
                record.add(feed.answers)
                yield _joined(writer.end(event))
            else:
                yield _joined(writer.event(event))
    except OctavoError as error:
        record.finish = "error"
        yield sse.event(fault_of(error).body(record.path, record.id), "error")


def _joined(events: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    return b"".join(_event(name, data) for name, data in events)


def _event(name: str, data: dict[str, Any]) -> bytes:
    return sse.event({"type": name, **data}, name)
