"""Huge memory pages."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """Weights in huge pages are read a little faster; Linux can have them switched off."""
    if facts.platform != "linux":
        return Finding("ok", "not used on this system")
    if facts.huge_pages == "never":
        return Finding(
            "note",
            "huge pages are switched off; reading weights takes a little longer",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    return Finding("ok", facts.huge_pages or "not known")
