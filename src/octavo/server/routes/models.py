"""The list of models, in a form that OpenAI's, Anthropic's and llama.cpp's clients all read."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel

from octavo.server.asking import fleet_of, resident_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault, RefusedError
from octavo.server.resident import Resident
from octavo.server.schema import answers
from octavo.server.wire.answers import ModelDone, ModelEntry, ModelList

router = APIRouter(tags=["Models"])


class ModelBody(BaseModel):
    """Which model, and how: `wait` until it is loaded; `force` also ends what it computes."""

    model: str
    wait: bool = False
    force: bool = False


@router.get("/v1/models", responses=answers(ModelList))
@router.get("/models", include_in_schema=False)
async def models(request: Request) -> Json:
    """The models that this server knows, loaded or not."""
    entries = [_entry(resident) for resident in fleet_of(request)]
    pages = {"has_more": False, "first_id": entries[0]["id"], "last_id": entries[-1]["id"]}
    return Json({"object": "list", "data": entries, **pages})


@router.get("/v1/models/{name:path}", responses=answers(ModelEntry))
async def model(name: str, request: Request) -> Json:
    """One model by its name."""
    fleet = fleet_of(request)
    resident = fleet.find(name)
    if name != resident.name:  # the only one answers questions to every name, but is called one
        raise RefusedError(
            Fault(404, f"the model {name!r} is not here; there is {resident.name!r}", "model")
        )
    return Json(_entry(resident))


@router.post("/v1/models/load", responses=answers(ModelDone))
@router.post("/models/load", include_in_schema=False)
async def load(body: ModelBody, request: Request) -> Json:
    """Begin to load a model; with `wait`, the answer comes when it is there.

    Idle models that were not used for longest give it their memory.
    """
    fleet, resident = fleet_of(request), resident_of(request)
    fleet.load(resident)
    if body.wait:
        await fleet.awaken(resident)
        _ = resident.session  # or why there is none
    return Json({"success": True, "status": status(resident)})


@router.post(
    "/v1/models/unload",
    responses=answers(ModelDone, faults={409: "The model answers, or is being loaded."}),
)
@router.post("/models/unload", include_in_schema=False)
async def unload(body: ModelBody, request: Request) -> Json:
    """Give a model up. One that answers requests only with `force`."""
    fleet, resident = fleet_of(request), resident_of(request)
    await anyio.to_thread.run_sync(partial(fleet.unload, resident, even_busy=body.force))
    return Json({"success": True, "status": status(resident)})


def status(resident: Resident) -> dict[str, Any]:
    """Where a model stands: llama.cpp's words, and how far its loading is."""
    value = {"ready": "loaded", "failed": "unloaded"}.get(resident.state, resident.state)
    found: dict[str, Any] = {"value": value}
    if resident.state == "failed":
        found |= {"failed": True, "error": str(resident.error)}
    if resident.state == "loading":
        stage, done, total = resident.progress
        found |= {"stage": stage, "done_bytes": done, "total_bytes": total}
    return found


def _entry(resident: Resident) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": resident.name,
        "object": "model",
        "type": "model",
        "created": resident.created,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(resident.created)),
        "owned_by": "octavo",
        "display_name": resident.name,
        "lifecycle": "active",
        "status": status(resident),
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
    }
    if resident.state == "ready":
        session = resident.session
        plan = session.plan
        entry["meta"] = {
            "n_ctx": plan.context,
            "n_ctx_train": plan.known_context,
            "n_vocab": session.tokenizer.vocab_size,
            "n_embd": session.n_embd,
            "size": plan.file_bytes,
            "architecture": plan.architecture,
            "memory_bytes": resident.n_bytes,
        }
    return entry
