"""Files of people -> text, for questions about them. Nothing is kept."""

from __future__ import annotations

import base64

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from octavo.documents.document import Document
from octavo.documents.reading import read
from octavo.errors import RequestError
from octavo.server.encoding import encode
from octavo.server.schema import answers
from octavo.server.wire.answers import DocumentText
from octavo.server.wire.body import Body
from octavo.server.wire.declared import Base64

router = APIRouter(tags=["Documents"])

MAX_AT_ONCE = 2  # reading processes
_places: RunVar[CapacityLimiter] = RunVar("octavo_document_places")


class DocumentBody(Body):
    """`data` is the file in base64; its name tells what the bytes do not."""

    name: str = Field(min_length=1, max_length=1000)
    data: Base64


@router.post(
    "/v1/documents", responses=answers(DocumentText, faults={422: "The file cannot be read."})
)
async def documents(body: DocumentBody) -> Response:
    """The text of a file, whole and by page: text of any kind, HTML, PDF, Word (.docx)."""
    answer = await anyio.to_thread.run_sync(_read, body, limiter=_limiter())
    return Response(answer, media_type="application/json")


def _limiter() -> CapacityLimiter:
    """One for each event loop."""
    try:
        return _places.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_AT_ONCE)
        _places.set(limiter)
        return limiter


def _read(body: DocumentBody) -> bytes:
    try:
        data = base64.b64decode(body.data, validate=True)
    except ValueError as error:  # binascii.Error is one, and letters beyond ASCII are another
        raise RequestError(f"data is no base64: {error}", "Send the file's bytes so.") from error
    return encode(_answer(read(body.name, data)))


def _answer(document: Document) -> dict[str, object]:
    text = document.text
    return {
        "object": "document",
        "name": document.name,
        "format": document.format,
        "text": text,
        "characters": len(text),
        "pages": [{"number": page.number, "text": page.text} for page in document.pages],
        "n_pages": document.n_pages,
        "truncated": document.is_cut,
    }
