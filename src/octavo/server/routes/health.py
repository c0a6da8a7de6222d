"""Whether the server can answer. Needs no key."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from octavo.server.asking import resident_of

router = APIRouter(tags=["Operation"])


@router.get("/health")
@router.get("/v1/health", include_in_schema=False)
async def health(request: Request) -> JSONResponse:
    """200 when the model is ready; 503 and how far it is while it is being loaded."""
    session = resident_of(request).session
    stats = session.engine.stats.snapshot()
    n_idle = max(0, session.plan.sequences - int(stats["running"]))
    return JSONResponse(
        {"status": "ok", "slots_idle": n_idle, "slots_processing": stats["running"]}
    )
