"""Block formats of the models here that have no fast kernel."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """Each file with such a format is named."""
    if not facts.slow_formats:
        return Finding("ok", "the models here use formats with fast kernels")
    files = "; ".join(f"{name}: {', '.join(slow)}" for name, slow in facts.slow_formats.items())
    return Finding(
        "note",
        f"slow, because these formats have no fast kernel here: {files}",
        "Take another file of the same model, for example Q4_K_M or Q8_0.",
    )
