"""llama.cpp's slots: who computes where, and saving, restoring and erasing what was computed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel

from octavo.engine.places import PlaceView
from octavo.errors import ContextFullError, FileFormatError, NotFoundError
from octavo.server.asking import resident_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault, RefusedError
from octavo.server.resident import Served
from octavo.server.schema import NAMES_MODEL, answers, sends
from octavo.server.wire.answers import Slot, SlotDone

router = APIRouter(tags=["llama.cpp"])


class SlotBody(BaseModel):
    """The name of a file in the folder of --slot-save-path."""

    filename: str = ""


@router.get("/slots", responses=answers(list[Slot]), openapi_extra=NAMES_MODEL)
async def slots(request: Request, fail_on_no_slot: bool = False) -> Json:
    """A place for each sequence that can run at once. `?fail_on_no_slot=1`: 503 if all work."""
    session = resident_of(request).session
    views = session.engine.places.views()
    if fail_on_no_slot and all(view.is_running for view in views):
        raise RefusedError(Fault(503, "no slot available", retry_after_seconds=1))
    return Json([_entry(view, session) for view in views])


@router.post(
    "/slots/{number}",
    responses=answers(SlotDone, faults={501: "There is no --slot-save-path."}),
    openapi_extra=sends(SlotBody.model_json_schema()),
)
async def act(number: int, action: Literal["save", "restore", "erase"], request: Request) -> Json:
    """Save what a slot computed last to a file, restore it from there, or erase it."""
    session = resident_of(request).session
    if action == "erase":
        n = await anyio.to_thread.run_sync(session.erase_place, number)
        return Json({"id_slot": number, "n_erased": n})
    path = _path(request, await _body(request))
    began = time.perf_counter()
    try:
        move = session.save_place if action == "save" else session.restore_place
        moved = await anyio.to_thread.run_sync(move, number, path)
    except (FileFormatError, NotFoundError, ContextFullError) as error:
        raise RefusedError(Fault(400, f"{error.message}. {error.hint}", "filename")) from error
    timings = {f"{action}_ms": round((time.perf_counter() - began) * 1000, 3)}
    counts = ("n_saved", "n_written") if action == "save" else ("n_restored", "n_read")
    numbers = dict(zip(counts, (moved.n_tokens, moved.n_bytes), strict=True))
    answer = {"id_slot": number, "filename": path.name, **numbers, "timings": timings}
    return Json(answer)


async def _body(request: Request) -> SlotBody:
    try:
        return SlotBody.model_validate_json(await request.body() or b"{}")
    except ValueError as error:
        raise RefusedError(Fault(400, "the body is no JSON with a filename", "filename")) from error


def _path(request: Request, body: SlotBody) -> Path:
    """The file, which cannot lie outside of the folder."""
    folder: Path | None = request.app.state.slot_folder
    if folder is None:
        message = "slots cannot be saved; start the server with --slot-save-path"
        raise RefusedError(Fault(501, message))
    name = body.filename
    is_plain = 0 < len(name) <= 255 and name.isprintable() and not set(name) & set('/\\:*?"<>|')
    if not is_plain or name.startswith(".") or name != name.strip(". "):
        raise RefusedError(Fault(400, f"filename is {name!r}; give a plain name", "filename"))
    return folder / name


def _entry(view: PlaceView, session: Served) -> dict[str, Any]:
    return {
        "id": view.id,
        "id_task": view.task,
        "n_ctx": session.plan.context,
        "speculative": session.plan.draft_tokens > 0,
        "is_processing": view.is_running,
        "n_prompt_tokens": view.n_prompt,
        "n_prompt_tokens_cache": view.n_cached,
        "next_token": {
            "has_next_token": view.is_running,
            "n_decoded": view.n_decoded,
            "n_remain": view.n_left,
        },
    }
