"""How much memory may be pinned or locked."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.memory import text

_EXPERTS_BYTES = 18 * 10**9  # of a model of the 35B class at four bits


def check(facts: Facts) -> Finding:
    """Only with a card: experts are copied to it from pinned memory."""
    here = facts.hardware
    if not here.gpus:
        return Finding("ok", "no card needs pinned memory")
    lock = (
        "" if here.lock_limit_bytes is None else f"; locking ends at {text(here.lock_limit_bytes)}"
    )
    if here.pin_limit_bytes is None:
        return Finding("ok", f"no limit but the memory itself{lock}")
    said = f"Windows lets the driver pin {text(here.pin_limit_bytes)}, half of the memory{lock}"
    if here.pin_limit_bytes < _EXPERTS_BYTES:
        return Finding(
            "note",
            f"{said}; the rest of a 35B model's experts is copied more slowly",
            "More memory raises the limit; Linux has none.",
        )
    return Finding("ok", said)
