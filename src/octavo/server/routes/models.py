"""The list of models, in a form that OpenAI's, Anthropic's and llama.cpp's clients all read."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from octavo.server.asking import resident_of
from octavo.server.faults import Fault, RefusedError
from octavo.server.resident import Resident

router = APIRouter(tags=["Models"])


@router.get("/v1/models")
@router.get("/models", include_in_schema=False)
async def models(request: Request) -> JSONResponse:
    """The model that is served, also while it is being loaded."""
    entry = _entry(resident_of(request))
    pages = {"has_more": False, "first_id": entry["id"], "last_id": entry["id"]}
    return JSONResponse({"object": "list", "data": [entry], **pages})


@router.get("/v1/models/{name:path}")
async def model(name: str, request: Request) -> JSONResponse:
    """One model by its name."""
    resident = resident_of(request)
    if name != resident.name:
        raise RefusedError(
            Fault(404, f"the model {name!r} is not here; there is {resident.name!r}", "model")
        )
    return JSONResponse(_entry(resident))


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
        "status": {"value": {"ready": "loaded"}.get(resident.state, resident.state)},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
    }
    if resident.state == "ready":
        plan = resident.session.plan
        entry["meta"] = {
            "n_ctx": plan.context,
            "n_ctx_train": plan.context,
            "n_vocab": resident.session.tokenizer.vocab_size,
            "size": plan.file_bytes,
            "architecture": plan.architecture,
        }
    return entry
