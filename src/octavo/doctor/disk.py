"""Room and rights in the folder for models."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding
from octavo.plan.memory import text

_LARGE_MODEL_BYTES = 25 * 10**9
_SMALL_MODEL_BYTES = 2 * 10**9


def check(facts: Facts) -> Finding:
    """A large model should fit; a small one must."""
    free, folder = facts.disk_free_bytes, facts.models_dir
    elsewhere = "Set OCTAVO_MODELS to a folder on another disk, or free some space."
    if not facts.is_writable:
        return Finding(
            "wrong",
            f"{folder} cannot be written to",
            "Set OCTAVO_MODELS to a folder of your own.",
        )
    said = f"{text(free)} free for models in {folder}"
    if free < _SMALL_MODEL_BYTES:
        return Finding("wrong", said, elsewhere)
    if free < _LARGE_MODEL_BYTES:
        return Finding("note", f"{said}; a model of the 35B class takes about 21 GB", elsewhere)
    return Finding("ok", said)
