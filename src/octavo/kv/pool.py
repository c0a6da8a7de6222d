"""Numbered places that several owners may share: cache pages and recurrent-state slots."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class Pool:
    """Places first..first+n-1, each with a count of its owners; free when the count is 0."""

    def __init__(self, n: int, first: int = 0) -> None:
        self.n_places = n
        self._counts = np.zeros(first + n, np.int32)
        # A stack: the place freed last is used next, its memory is still warm.
        self._free = list(range(first + n - 1, first - 1, -1))

    @property
    def n_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """A free place, now with one owner. The caller has checked `n_free`."""
        place = self._free.pop()
        self._counts[place] = 1
        return place

    def share(self, places: Iterable[int]) -> None:
        """One owner more for each."""
        for place in places:
            assert self._counts[place] > 0, f"place {place} is shared but has no owner"
            self._counts[place] += 1

    def free(self, places: Iterable[int]) -> None:
        """One owner less for each."""
        for place in places:
            assert self._counts[place] > 0, f"place {place} is freed but has no owner"
            self._counts[place] -= 1
            if self._counts[place] == 0:
                self._free.append(place)

    def owners(self, place: int) -> int:
        return int(self._counts[place])
