"""The numbered places of running sequences, which llama.cpp's clients know as slots.

A sequence has a place while it runs; afterwards the place remembers its tokens, so that they can
be saved or erased by the place's number until another sequence takes it.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np

from octavo.engine.sequence import Sequence
from octavo.kv.cache import Ids, common_length
from octavo.record import dataclass

_NOTHING: Ids = np.zeros(0, np.int32)


@dataclass(frozen=True)
class PlaceView:
    """What anyone may know of a place."""

    id: int
    task: int  # which request, counted from 0; -1: none yet
    is_running: bool
    n_prompt: int  # tokens of the prompt of the running or last sequence
    n_cached: int
    n_decoded: int
    n_left: int  # tokens that it may still generate


class Place:
    """One place. `ids` are the tokens of its last sequence, when none runs."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.task = -1
        self.job: Sequence | None = None
        self.ids: Ids = _NOTHING
        self.last_used = 0

    def view(self) -> PlaceView:
        job = self.job
        if job is None:
            return PlaceView(self.id, self.task, False, len(self.ids), 0, 0, -1)
        return PlaceView(
            self.id, self.task, True, job.n_prompt, job.n_cached, job.n_generated, job.n_left
        )


class Places:
    """All places. The engine's thread changes them; `views` is for everyone."""

    def __init__(self, n: int) -> None:
        self._places = [Place(i) for i in range(n)]
        self._n_tasks = 0

    def __getitem__(self, id: int) -> Place:
        return self._places[id]

    def __len__(self) -> int:
        return len(self._places)

    def views(self) -> list[PlaceView]:
        return [place.view() for place in self._places]

    def take(self, job: Sequence) -> None:
        """A place for a sequence that starts: where its beginning was, or the longest idle one."""
        free = [place for place in self._places if place.job is None]
        ids = np.array(job.ids, np.int32)

        def fits(place: Place) -> tuple[int, int]:
            n = common_length(place.ids, ids)
            return (n if 2 * n >= len(place.ids) else 0), -place.last_used

        place = max(free, key=fits)
        place.job, place.task = job, self._n_tasks
        self._n_tasks += 1
        place.last_used = self._n_tasks

    def leave(self, job: Sequence, held: Many[int] | Ids) -> None:
        """The sequence runs no more; `held` are the tokens that were computed."""
        for place in self._places:
            if place.job is job:
                place.job, place.ids = None, np.array(held, np.int32)
