"""Where the memory of the loaded model goes, for pictures of it."""

from __future__ import annotations

from typing import Any

import psutil
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from octavo.plan.hardware import probe
from octavo.plan.plan import Plan
from octavo.server.asking import resident_of

router = APIRouter(tags=["Operation"])


@router.get("/v1/memory")
async def memory(request: Request) -> JSONResponse:
    """Bytes of each part of the plan, and what this process and the machine hold now."""
    resident = resident_of(request)
    plan, hardware = resident.session.plan, probe()
    return JSONResponse(
        {
            "model": resident.name,
            "parts": parts(plan),
            "available_bytes": plan.available_bytes,
            "reserve_bytes": plan.reserve_bytes,
            "fits": plan.fits,
            "weights": plan.weights,
            "context": plan.context,
            "sequences": plan.sequences,
            "cache_format": plan.cache_format,
            "read_bytes_per_token": plan.read_bytes_per_token,
            "process_bytes": psutil.Process().memory_info().rss,
            "machine_bytes": hardware.memory_bytes,
            "machine_free_bytes": hardware.available_bytes,
        }
    )


def parts(plan: Plan) -> list[dict[str, Any]]:
    """{"group", "name", "bytes"} of all that the model takes, weights by kind; none is empty."""
    rows = [("weights", kind, n) for kind, n in plan.weight_bytes.items()]
    rows += [
        ("cache", "cache", plan.cache_bytes),
        ("states", "states", plan.state_bytes),
        ("scratch", "scratch", plan.scratch_bytes),
    ]
    return [{"group": group, "name": name, "bytes": n} for group, name, n in rows if n]
