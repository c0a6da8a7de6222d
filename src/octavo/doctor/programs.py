"""Other programs that hold video memory."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.gpus import Gpu
from octavo.plan.memory import text

_MUCH_SHARE = 0.1
_SHOWN = 5


def check(facts: Facts) -> Finding:
    """More than a tenth of a card is worth closing something."""
    if not facts.hardware.gpus:
        return Finding("ok", "no card")
    crowded = [gpu for gpu in facts.hardware.gpus if _held(gpu) > _MUCH_SHARE * gpu.total_bytes]
    if not crowded:
        gpu = facts.hardware.gpus[0]
        return Finding("ok", f"{text(gpu.free_bytes)} of {text(gpu.total_bytes)} free")
    said = "; ".join(f"{text(_held(gpu))} of {gpu.name} are held by {_who(gpu)}" for gpu in crowded)
    mend = "Close them, or move the screen to the processor's own graphics."
    return Finding("note", said, mend)


def _held(gpu: Gpu) -> int:
    return gpu.total_bytes - gpu.free_bytes


def _who(gpu: Gpu) -> str:
    if not gpu.programs:
        return "the desktop" if gpu.has_display else "programs that the driver does not name"
    names = [p.name if p.n_bytes is None else f"{p.name} ({text(p.n_bytes)})" for p in gpu.programs]
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
