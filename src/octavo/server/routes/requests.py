"""What can be done to a request while it is being answered."""

from __future__ import annotations

from fastapi import APIRouter, Request

from octavo.server.asking import running_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault, RefusedError
from octavo.server.schema import answers, sends
from octavo.server.wire.answers import AnswerNow

router = APIRouter(tags=["Operation"])


@router.post(
    "/v1/requests/{id}/answer-now",
    responses=answers(AnswerNow),
    openapi_extra=sends({"type": "object"}),
)
async def answer_now(id: str, request: Request) -> Json:
    """End the thinking of a chat that is being answered; it goes on with the answer.

    `id` is the `x-request-id` of the response. `ended_thinking` is false where the model does not
    think, or no more.
    """
    feed = running_of(request).get(id)
    if feed is None or feed.is_over:
        raise RefusedError(Fault(404, f"no request {id!r} is being answered", "id"))
    return Json({"id": id, "ended_thinking": feed.answer_now()})
