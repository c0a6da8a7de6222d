"""Video memory that lies in main memory."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.borrowed import REMEDY
from octavo.plan.layout import spill_margin_bytes
from octavo.plan.memory import text

_MUCH_BYTES = 1 << 30  # drivers and browsers borrow some hundred MB


def check(facts: Facts) -> Finding:
    """Only on a full card: with room on it, shared memory is what programs pinned by themselves."""
    borrowing = [(name, n) for name, n in facts.borrowers if n >= _MUCH_BYTES]
    full = [g for g in facts.hardware.gpus if g.free_bytes < spill_margin_bytes(g.total_bytes)]
    if not full or not borrowing:
        return Finding("ok", "no program has video memory that lies in main memory")
    names = ", ".join(f"{name} ({text(n)})" for name, n in borrowing)
    return Finding(
        "note",
        f"{full[0].name} is full, and main memory stands in for it, ten times slower: {names}",
        REMEDY,
    )
