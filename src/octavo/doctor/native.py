"""The native core and its instruction set."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """It must be there, at the processor's best level."""
    if not facts.levels:
        return Finding(
            "wrong",
            "the native core is missing; only the slow reference would run",
            "Install the package for this Python again: pip install --force-reinstall octavo.",
        )
    here, best = facts.hardware.isa, facts.levels[-1]
    n_threads = facts.hardware.n_threads
    if here != best:
        return Finding(
            "note",
            f"instructions {here} are used, the processor has {best}"
            + (" (OCTAVO_ISA says so)" if facts.asked_level else ""),
            "Unset OCTAVO_ISA, unless you compare levels.",
        )
    if best == "baseline":
        return Finding(
            "note",
            "the processor has neither AVX2 nor NEON; everything runs, slowly",
            "In a virtual machine, pass the host's processor features through.",
        )
    return Finding("ok", f"instructions {here}, {n_threads} threads")
