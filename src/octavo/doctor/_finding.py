"""What a check found."""

from __future__ import annotations

from typing import Literal

from octavo.record import dataclass

Level = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class Finding:
    """ok: nothing to do; note: works, but worse than it could; wrong: something will fail.

    `text` says what is the case, `mend` what to do about it ("" where nothing need be done).
    """

    level: Level
    text: str
    mend: str = ""
