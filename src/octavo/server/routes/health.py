"""Whether the server can answer. Needs no key."""

from __future__ import annotations

from fastapi import APIRouter, Request

from octavo.server.asking import fleet_of
from octavo.server.encoding import Json
from octavo.server.faults import RefusedError
from octavo.server.routes.models import status
from octavo.server.schema import answers
from octavo.server.wire.answers import Health

router = APIRouter(tags=["Operation"])


@router.get("/health", responses=answers(Health))
@router.get("/v1/health", include_in_schema=False)
async def health(request: Request) -> Json:
    """200 when there is a model to answer, or one that is loaded when it is asked for.

    503 and how far it is while the first is being loaded. `models` says how each of them stands.
    """
    fleet = fleet_of(request)
    ready = [resident for resident in fleet if resident.state == "ready"]
    if not ready and fleet.first.state != "unloaded":
        raise RefusedError(fleet.first.unavailable())
    n_running = n_slots = 0
    for resident in ready:
        session = resident.session
        n_running += int(session.engine.stats.snapshot()["running"])
        n_slots += session.plan.sequences
    return Json(
        {
            "status": "ok",
            "slots_idle": max(0, n_slots - n_running),
            "slots_processing": n_running,
            "models": {resident.name: status(resident) for resident in fleet},
        }
    )
