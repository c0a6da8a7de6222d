"""What the user asks of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import SettingError
from octavo.record import dataclass

_WORDS: Mapping[str, tuple[str, ...]] = {
    "weights": ("read", "map"),
    "experts": ("move", "stay"),
    "placement": ("cpu", "gpu", "split", "card", "auto"),
}
_COUNTS = ("context", "sequences", "batch", "threads", "video_bytes")
_COUNTS_FROM_ZERO = ("draft_tokens", "snapshots")


@dataclass(frozen=True)
class Wishes:
    """What the user asks for; None: the planner chooses.

    Raises:
        SettingError: a number is too low, or a word is another one than those.
    """

    context: int | None = None  # tokens of prompt and answer of one sequence
    sequences: int | None = None  # at once
    batch: int | None = None  # most prompt tokens of one step
    cache_format: str | None = None
    weights: str | None = None  # "read" or "map"
    draft_tokens: int | None = None  # most tokens guessed ahead; 0: no speculation
    snapshots: int | None = None  # recurrent states kept to go back to
    threads: int | None = None
    # "cpu"; "gpu": all on the card; "split": all but embedding and experts; "card": the first of
    # these two that fits; "auto": else cpu. None: cpu, where the engine runs unless it is asked
    # for a card.
    placement: str | None = None
    # In a split, whether who sits on the card follows what is asked for ("move", also None), or
    # never changes ("stay"), so that the same question gets the same answer again.
    experts: str | None = None
    video_bytes: int | None = None  # most video memory to use, the CUDA context included

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            if getattr(self, name) not in (None, *words):
                raise SettingError(
                    f"{name} is {getattr(self, name)!r}", f"Use {' or '.join(words)}."
                )
        for name in (*_COUNTS, *_COUNTS_FROM_ZERO):
            value, low = getattr(self, name), 0 if name in _COUNTS_FROM_ZERO else 1
            if value is not None and value < low:
                raise SettingError(f"{name} is {value}", f"Use a whole number from {low}.")
