"""Models that drop the thinking of earlier turns."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """Each such file is named: its conversations are read again at each question, in part."""
    if not facts.forgetful:
        return Finding("ok", "the models here keep what they thought, or do not think")
    return Finding(
        "note",
        f"templates that drop the thinking of earlier turns, so that what came since the last "
        f"question is read again at the next one: {', '.join(facts.forgetful)}",
        "`octavo plan FILE` says how long that takes. Take a newer file of the model, whose "
        "template knows preserve_thinking, or switch thinking off for agents.",
    )
