"""OpenAI's Responses API: answers with items, kept so that a conversation can go on from them."""

from __future__ import annotations

from typing import Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.chat import Answer
from octavo.errors import RequestError
from octavo.server import sse
from octavo.server.asking import ask, awake, prompt_of, resident_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault, RefusedError
from octavo.server.schema import answers
from octavo.server.telling import Words, tell
from octavo.server.wire.answers import (
    ResponseDeleted,
    ResponseInput,
    ResponseObject,
    ResponseTokens,
)
from octavo.server.wire.responses import ResponsesBody
from octavo.server.wire.responses_answer import ResponseWriter
from octavo.server.wire.responses_store import ResponseStore, Stored, listed
from octavo.text.split import Event
from octavo.types import ChatRequest, Message

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/responses", responses=answers(ResponseObject, streams=True))
@router.post("/responses", include_in_schema=False)
async def responses(body: ResponsesBody, request: Request) -> Response:
    """Answer a text, or a conversation made of items."""
    chat, talk = _read(body, request)
    feed = await ask(request, chat)
    resident = resident_of(request)
    piece = resident.session.tokenizer.piece if body.wants_logprobs else None
    writer = ResponseWriter(resident.name, body, feed.answers[0], piece)

    n_asked = len(await request.body())

    def keep(answer: Answer, response: dict[str, Any], sent: bytes | memoryview) -> None:
        if body.is_stored:
            said = Message("assistant", answer.content, answer.reasoning, tuple(answer.tool_calls))
            items = listed(body.input, writer.id)
            n_bytes = n_asked + len(sent)
            _store(request).put(Stored(response, items, (*talk, said), n_bytes))

    if not body.stream:
        (answer,) = await feed.whole(request)
        whole = writer.whole()
        reply = Json(whole)
        keep(answer, whole, reply.body)
        return reply

    def write(_: int, event: Event | Answer) -> bytes:
        if not isinstance(event, Answer):
            return sse.typed(*writer.event(event))
        last = list(writer.end())
        sent = sse.typed(*last)
        keep(event, last[-1][1]["response"], sent)
        return sent

    def fail(fault: Fault) -> bytes:
        return sse.typed(*writer.fail(fault))

    return tell(feed, Words(sse.typed(*writer.begin()), write, fail), request)


@router.post("/v1/responses/input_tokens", responses=answers(ResponseTokens))
async def input_tokens(body: ResponsesBody, request: Request) -> Json:
    """Tokens of the prompt that this input makes. Does not wait for any answer."""
    chat, _ = _read(body, request)
    prompt = await anyio.to_thread.run_sync(prompt_of, await awake(request), chat)
    return Json({"object": "response.input_tokens", "input_tokens": len(prompt.ids)})


@router.get("/v1/responses/{id}", responses=answers(ResponseObject))
async def response(id: str, request: Request) -> Response:
    """A response that was given before."""
    return Json(_find(id, request).response)


@router.get("/v1/responses/{id}/input_items", responses=answers(ResponseInput))
async def input_items(
    id: str, request: Request, order: Literal["asc", "desc"] = "desc"
) -> Response:
    """What a response was asked, the latest item first unless `order` is asc."""
    items = list(_find(id, request).input)
    if order == "desc":
        items.reverse()
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
    listing = {"object": "list", "data": items, "has_more": False, **ends}
    return Json(listing)


@router.delete("/v1/responses/{id}", responses=answers(ResponseDeleted))
async def delete(id: str, request: Request) -> Json:
    """Forget a response."""
    _find(id, request)
    _store(request).delete(id)
    return Json({"id": id, "object": "response", "deleted": True})


def _read(body: ResponsesBody, request: Request) -> tuple[ChatRequest, tuple[Message, ...]]:
    store = _store(request)
    earlier: tuple[Message, ...] = ()
    if body.previous_response_id:
        before = store.get(body.previous_response_id)
        if before is None:
            raise RequestError(
                f"previous_response_id: there is no response {body.previous_response_id!r}",
                "It was not stored, or is no longer: send the whole conversation as input.",
            )
        earlier = before.talk
    return body.read(earlier, store.item)


def _find(id: str, request: Request) -> Stored:
    stored = _store(request).get(id)
    if stored is None:
        raise RefusedError(Fault(404, f"there is no response {id!r}", "id"))
    return stored


def _store(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.responses
    return store
