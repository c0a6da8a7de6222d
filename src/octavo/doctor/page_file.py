"""The page file (swap)."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.memory import text

_LITTLE_BYTES = 16 * 10**9


def check(facts: Facts) -> Finding:
    """Windows counts every allocation against memory and page file together."""
    size = facts.hardware.page_file_bytes
    if size:
        return Finding("ok", f"{text(size)}")
    if facts.platform == "win32":
        return Finding(
            "note",
            "there is no page file, so Windows refuses memory that is only reserved",
            "Let Windows manage the size: System, Advanced, Performance, Virtual memory.",
        )
    if facts.hardware.memory_bytes < _LITTLE_BYTES:
        return Finding(
            "note",
            "no swap: when memory runs out, programs are ended",
            "Add some, so that programs at rest can make room: a swap file of 8 GB.",
        )
    return Finding("ok", "none, and enough memory")
