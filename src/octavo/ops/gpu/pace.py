"""How the experts of a long step are shared between the link and the processor, by measured times.

An expert of a few tokens costs the processor little more than reading it, and the link the same as
one of a thousand tokens. So the processor takes those with the fewest tokens, as many as it can do
while the others come to the card.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Of an expert, when it is timed: so many that the processor multiplies them as in a long step.
TIMED_TOKENS = 5, 16


@dataclass(frozen=True)
class Pace:
    """Seconds of one expert over the link; of one, and of a token more, on the processor."""

    link: float
    expert: float
    token: float


ALL_BY_LINK = Pace(0.0, 1.0, 1.0)


def solve(few: tuple[int, int, float], more: tuple[int, int, float]) -> tuple[float, float]:
    """Seconds of an expert and of a token from two measurements: (experts, tokens, seconds)."""
    (experts, tokens, seconds), (more_experts, more_tokens, more_seconds) = few, more
    scale = more_experts / experts
    token = (more_seconds - scale * seconds) / max(more_tokens - scale * tokens, 1)
    token = max(token, 0.0)
    return max((seconds - tokens * token) / experts, 0.0), token


def take_few(counts: NDArray[np.integer], n_coming: int, pace: Pace) -> NDArray[np.intp]:
    """Which experts the processor computes; `counts` are the tokens of each.

    `n_coming` others are on the link already. Those without tokens are nobody's.
    """
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    processor = np.cumsum(pace.expert + pace.token * counts[order])
    link = pace.link * (n_coming + len(order) - 1 - np.arange(len(order)))
    return order[: int((processor <= link).sum())]
