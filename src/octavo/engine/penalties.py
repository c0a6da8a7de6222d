"""Rules that look back at the text so far: repeat, frequency and presence penalties, and DRY.

They change a few entries of a logits row in place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from octavo.types import SamplingParams

Row = NDArray[np.float32]
Ids = NDArray[np.int32]

# Longest repeat that DRY tells apart: its penalty is then beyond any logit for usual settings,
# and the search stays linear even in a text of one token.
MAX_REPEAT = 128


class History:
    """The ids of a sequence so far, prompt included, as a growing array."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = np.array(list(ids), np.int32)
        self._n = len(self._ids)

    def add(self, token: int) -> None:
        if self._n == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(self._n + 64, np.int32)])
        self._ids[self._n] = token
        self._n += 1

    def last(self, n: int) -> Ids:
        """The latest n ids, oldest first; -1: all. A view."""
        return self._ids[: self._n] if n < 0 else self._ids[max(0, self._n - n) : self._n]


def penalise_repeats(row: Row, history: History, p: SamplingParams) -> None:
    """Repeat, frequency and presence penalties over the latest `repeat_last_n` ids."""
    recent = history.last(p.repeat_last_n)
    on = p.repeat_penalty != 1 or p.frequency_penalty != 0 or p.presence_penalty != 0
    if not on or not len(recent):
        return
    ids, counts = np.unique(recent, return_counts=True)
    x = row[ids].astype(np.float64)
    x = np.where(x > 0, x / p.repeat_penalty, x * p.repeat_penalty)
    row[ids] = x - counts * p.frequency_penalty - p.presence_penalty


def penalise_copies(row: Row, history: History, p: SamplingParams) -> None:
    """DRY: take multiplier * base^(n - allowed) off each id that would extend a repeat of n ids."""
    recent = history.last(p.dry_last_n)
    if p.dry_multiplier == 0 or len(recent) < 2:
        return
    ids, lengths = repeats(recent, p.dry_breakers)
    long_enough = lengths >= p.dry_allowed_length
    ids, lengths = ids[long_enough], lengths[long_enough]
    with np.errstate(over="ignore"):  # inf forbids the token, which is meant
        powers = float(p.dry_base) ** (lengths - p.dry_allowed_length)
        row[ids] = row[ids] - p.dry_multiplier * powers


def repeats(ids: Ids, breakers: frozenset[int]) -> tuple[Ids, NDArray[np.int64]]:
    """For each id that once followed what now ends the text: the longest such repeat.

    A repeat holds no breaker. -> distinct ids, and lengths from 1 to MAX_REPEAT.
    """
    n = len(ids)
    ends = np.arange(n - 1)  # a repeat that ends at ids[end] proposes ids[end + 1]
    lengths = np.zeros(n - 1, np.int64)
    for back in range(min(n - 1, MAX_REPEAT)):
        last = int(ids[n - 1 - back])
        if last in breakers:
            break
        ends = ends[ends >= back]
        ends = ends[ids[ends - back] == last]
        if not len(ends):
            break
        lengths[ends] = back + 1
    found = np.flatnonzero(lengths)
    followers, place = np.unique(ids[found + 1], return_inverse=True)
    longest = np.zeros(len(followers), np.int64)
    np.maximum.at(longest, place, lengths[found])
    return followers, longest
