"""Joining adjacent symbols, best pair first: what byte-pair and SentencePiece models share."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Rank = Callable[[str, str], float | None]


def merge(symbols: list[str], rank: Rank) -> list[str]:
    """Join neighbours until no pair has a rank. Lowest rank first; of equal ones, the leftmost.

    `symbols` is used up. O(n log n) for n symbols, whatever their text.
    """
    left = list(range(-1, len(symbols) - 1))
    right = list(range(1, len(symbols) + 1))
    queue: list[tuple[float, int, int, str]] = []
    for i in range(len(symbols) - 1):
        value = rank(symbols[i], symbols[i + 1])
        if value is not None:
            queue.append((value, i, i + 1, symbols[i] + symbols[i + 1]))
    heapq.heapify(queue)
    end = len(symbols)
    while queue:
        _, a, b, joined = heapq.heappop(queue)
        # A pair goes stale when either side has grown or has been swallowed ("").
        if not symbols[a] or right[a] != b or symbols[a] + symbols[b] != joined:
            continue
        symbols[a], symbols[b] = joined, ""
        after = right[a] = right[b]
        before = left[a]
        if after < end:
            left[after] = a
            value = rank(joined, symbols[after])
            if value is not None:
                heapq.heappush(queue, (value, a, after, joined + symbols[after]))
        if before >= 0:
            value = rank(symbols[before], joined)
            if value is not None:
                heapq.heappush(queue, (value, before, a, symbols[before] + joined))
    return [s for s in symbols if s]
