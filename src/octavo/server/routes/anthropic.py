"""Anthropic's API: messages, and how many tokens they are."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.chat import Answer
from octavo.server import sse
from octavo.server.asking import ask, awake, prompt_of, resident_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault
from octavo.server.record import Record
from octavo.server.schema import answers
from octavo.server.telling import Words, tell
from octavo.server.wire.answers import ClaudeCount, ClaudeMessage
from octavo.server.wire.anthropic import MessagesBody
from octavo.server.wire.anthropic_answer import MessageWriter
from octavo.text.split import Event

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

    def write(_: int, event: Event | Answer) -> bytes:
        return sse.typed(*(writer.end(event) if isinstance(event, Answer) else writer.event(event)))

    def fail(fault: Fault) -> bytes:
        return sse.event(fault.body(record.path, record.id), "error")

    begin = sse.typed(*writer.begin(feed.prompt_tokens))
    return tell(feed, Words(begin, write, fail, ping=sse.typed(("ping", {}))), request)


@router.post("/v1/messages/count_tokens", responses=answers(ClaudeCount))
async def count_tokens(body: MessagesBody, request: Request) -> Json:
    """Tokens of the prompt that these messages make. Does not wait for any answer."""
    chat = body.read()
    resident = await awake(request)
    prompt = await anyio.to_thread.run_sync(prompt_of, resident, chat)
    return Json({"input_tokens": len(prompt.ids)})
