"""The memory of sequences: where each one's cache comes from, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from octavo.engine.places import Places
from octavo.engine.sequence import Sequence
from octavo.engine.speculative import DraftBlock
from octavo.errors import CacheFullError
from octavo.kv.cache import Cache, Timeline
from octavo.kv.prefix import PrefixStore


class Rooms:
    """Belongs to the engine's thread.

    Args:
        prefixes: finished sequences are kept there; None: nothing is kept.
        draft_block: has a trail beside each timeline; None: it is not used.
    """

    def __init__(
        self,
        cache: Cache,
        prefixes: PrefixStore | None,
        places: Places,
        draft_block: DraftBlock | None,
    ) -> None:
        self._cache = cache
        self._prefixes = prefixes
        self._places = places
        self._draft_block = draft_block
        self._has_news = False  # something was kept since prefixes were last saved

    @property
    def figures(self) -> dict[str, int]:
        """What is kept, for the statistics."""
        return {} if self._prefixes is None else self._prefixes.figures()

    @property
    def wants_saving(self) -> bool:
        """Whether something is kept that is not on disk, and could be."""
        return self._has_news and self._prefixes is not None and self._prefixes.shelf is not None

    def save(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Write what is kept to disk, as long as it may go on."""
        if self._prefixes is not None:
            self._prefixes.save(may_go_on)
            self._has_news = not may_go_on()  # it was interrupted

    def has_twin(self, job: Sequence, prefilling: Iterable[Sequence]) -> bool:
        """Whether another is computing the same prompt: this one waits for it and goes on there."""
        twins = [other for other in prefilling if job.is_twin(other)]
        if twins and self._cache.recurrent:
            twins[0].mark_end()
        return bool(twins) and self._prefixes is not None

    def open(self, job: Sequence) -> None:
        """Give it a timeline with room for its whole prompt, so that started prompts can finish.

        Raises:
            CacheFullError: there is no such room.
        """
        timeline = self._begin(job)
        try:
            timeline.reserve(len(job.ids) - timeline.n_tokens)
        except CacheFullError:
            timeline.close()
            raise
        if not job.n_generated:
            job.n_cached = timeline.n_tokens
        job.timeline = timeline
        if self._draft_block is not None and job.states is None:
            job.trail = self._draft_block.begin(timeline)
        self._places.take(job)

    def _begin(self, job: Sequence) -> Timeline:
        if job.states is not None:  # every token's state is wanted, so nothing is reused
            job.states.clear()
            return self._cache.open()
        if self._prefixes is None or job.wants_scores:
            job.mailbox.prompt_tokens.clear()
            return self._cache.open()
        found = self._prefixes.find(np.array(job.ids, np.int32))
        job.reuse = job.reuse or (found.cause, found.reason)
        return found.timeline

    def free_spares(self, jobs: Collection[Sequence]) -> bool:
        """Slots that are only there for guesses go to who cannot run without."""
        spares = [slot for job in jobs for slot in job.spare_slots]
        for job in jobs:
            job.spare_slots.clear()
        for slot in spares:
            self._cache.free_slot(slot)
        return bool(spares)

    def release(self, job: Sequence, keep: bool) -> None:
        """Give back a sequence's memory, or keep it for later prompts."""
        timeline, trail = job.timeline, job.trail
        job.timeline, job.trail = None, None
        self.free_spares([job])
        if timeline is None:
            return
        self._places.leave(job, timeline.ids if keep else ())
        if not keep or self._prefixes is None:
            timeline.close()
            return
        if trail is not None and self._draft_block is not None:
            self._draft_block.catch_up(trail, timeline, force=True)
        self._prefixes.keep(timeline)
        self._has_news = True
