"""Free memory, and who holds the rest."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.memory import text

_LEAST_BYTES = 2 * 10**9
_LEAST_SHARE = 0.4


def check(facts: Facts) -> Finding:
    """Little in all is wrong; much held by others is a note."""
    available, total = facts.hardware.available_bytes, facts.hardware.memory_bytes
    said = f"{text(available)} of {text(total)} available"
    held = ", ".join(f"{name} {text(n)}" for name, n in facts.big_programs)
    held = f"; most is held by {held}" if held else ""
    if available < _LEAST_BYTES:
        return Finding("wrong", said + held, "Close programs, or use a small model.")
    if available < _LEAST_SHARE * total:
        return Finding("note", said + held, "Close what you do not need before loading a model.")
    return Finding("ok", said)
