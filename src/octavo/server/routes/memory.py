"""Where the memory of the loaded model goes, for pictures of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psutil
from fastapi import APIRouter, Request

from octavo.plan.hardware import main_memory
from octavo.plan.plan import Plan, Video
from octavo.server.asking import resident_of
from octavo.server.encoding import Json
from octavo.server.schema import NAMES_MODEL, answers
from octavo.server.wire.answers import Memory

router = APIRouter(tags=["Operation"])


@router.get("/v1/memory", responses=answers(Memory), openapi_extra=NAMES_MODEL)
async def memory(request: Request) -> Json:
    """Bytes of each part of the plan, by place, and what this process and the machine hold now."""
    resident = resident_of(request)
    plan, (total_bytes, free_bytes) = resident.session.plan, main_memory()
    return Json(
        {
            "model": resident.name,
            "places": places(plan),
            "fits": plan.fits,
            "weights": plan.weights,
            "context": plan.context,
            "sequences": plan.sequences,
            "cache_format": plan.cache_format,
            "read_bytes_per_token": plan.read_bytes_per_token,
            "process_bytes": psutil.Process().memory_info().rss,
            "machine_bytes": total_bytes,
            "machine_free_bytes": free_bytes,
        }
    )


def places(plan: Plan) -> list[dict[str, Any]]:
    """Main memory, and the card's if the plan has one.

    Each is {"place", "name", "parts", "available_bytes", "reserve_bytes"}; a part is {"group",
    "name", "bytes"}. Weights are parted by kind, and no part is empty.
    """
    steps = {"cache": plan.cache_bytes, "states": plan.state_bytes, "scratch": plan.scratch_bytes}
    if plan.video is None:
        return [_main(plan, _parts(plan.weight_bytes, steps))]
    card = plan.video
    here = _parts(card.left_bytes, {"scratch": card.host_scratch_bytes})
    return [_video(card, steps), _main(plan, here)]


def _main(plan: Plan, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "place": "main",
        "name": "",
        "parts": parts,
        "available_bytes": plan.available_bytes,
        "reserve_bytes": plan.reserve_bytes,
    }


def _video(card: Video, steps: Mapping[str, int]) -> dict[str, Any]:
    own = {"pool": card.pool_bytes, "ring": card.ring_bytes}
    system = {"context": card.context_bytes, "slack": card.slack_bytes}
    return {
        "place": "video",
        "name": card.gpu,
        "parts": _parts(card.weight_bytes, own | dict(steps) | system),
        "available_bytes": card.limit_bytes,
        "reserve_bytes": 0,
    }


def _parts(weights: Mapping[str, int], others: Mapping[str, int]) -> list[dict[str, Any]]:
    rows = [("weights", kind, n) for kind, n in weights.items()]
    rows += [(name, name, n) for name, n in others.items()]
    return [{"group": group, "name": name, "bytes": n} for group, name, n in rows if n]
