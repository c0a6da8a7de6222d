"""Who sits on the card, from step to step: the pool's decisions become copies and tables.

Between two steps `settle` publishes a table without those who are to leave, and hands the rest to a
thread of its own, which works while the next step runs: it begins to copy over those who left, and
lets the pool decide from what the last step asked for. Who comes enters the table at the first
settling that finds the copy done. So no table ever names a slot that is being written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.experts.heat import load_heat, merged, save_heat
from octavo.experts.pool import NOBODY, Admission, ExpertPool, Ids, Rules

PROMPT_TOKENS = 32  # a step of more is a prompt's: it says what is asked for, and brings nothing
# Where copies are not from pinned memory: the thread that runs steps waits for them.
SLOW = Rules(most_bytes=6_000_000)
STILL = Rules(most_per_block=0)  # nobody comes after the start
_FILL_SECONDS = 60.0


class Arrival(Protocol):
    """A copy that was begun."""

    def is_passed(self) -> bool:
        """Whether it is done."""
        ...


class Spent(Protocol):
    """Where the time of steps went: see `octavo.ops.gpu.handoff.Spent`."""

    waiting_seconds: float
    computing_seconds: float
    n_experts: int


class Store(Protocol):
    """Experts in two places, as a back end holds them: see `octavo.ops.gpu.split.Split`."""

    slot_bytes: int
    slots: Ids

    @property
    def spent(self) -> Spent: ...

    @property
    def n_slots(self) -> int: ...

    def publish(self, slots: Ids, /) -> None: ...

    def bring(self, block: int, expert: int, slot: int, /) -> Arrival: ...

    def asked(self) -> Mapping[int, Ids]: ...

    def tune(self) -> None: ...

    def wait(self) -> None: ...

    def room_bytes(self, limit_bytes: int, free_bytes: int, /) -> int | None: ...

    def make_pool(self, n_bytes: int, /) -> None: ...

    def rehearsing(self) -> AbstractContextManager[None]: ...


class Residents:
    """The experts of one model on the card. Belongs to the thread that runs steps.

    Attributes:
        n_asked, n_found: experts that tokens were sent to in steps of a few tokens, and those of
            them that were on the card; of all steps after `finish`.
    """

    def __init__(
        self,
        store: Store,
        *,
        floor: int,
        rules: Rules | None = None,
        heat_file: Path | None = None,
    ) -> None:
        """`floor`: slots that each block keeps. `heat_file`: what was asked for, of other runs."""
        n_blocks, n_experts = store.slots.shape
        floor = min(floor, store.n_slots // n_blocks, n_experts)
        self._pool = ExpertPool(
            n_blocks, n_experts, store.n_slots, store.slot_bytes, floor=floor, rules=rules
        )
        self.store = store
        self._coming: list[tuple[Admission, Arrival]] = []
        self._heat_file = heat_file
        self._heat = None if heat_file is None else load_heat(heat_file, n_blocks, n_experts)
        self.n_asked = self.n_found = 0
        self._thread = ThreadPoolExecutor(1, "octavo-experts")
        self._decision: Future[list[Admission]] | None = None

    def fill(self) -> None:
        """At the start: fill all slots, and wait for the copies.

        Raises:
            TimeoutError: they do not end.
        """
        self._begin(self._pool.seed(self._heat))
        end = time.monotonic() + _FILL_SECONDS
        while not self._receive():
            if time.monotonic() > end:
                raise TimeoutError("copies of experts to the card do not end")
            time.sleep(1e-4)
        self.store.publish(self._pool.slot_of)

    def settle(self) -> None:
        """After a step of the trunk; what draft blocks asked for since counts with it."""
        admissions = [] if self._decision is None else self._decision.result()
        n_before = len(self._coming)
        self._receive()
        self.store.tune()
        asked, slots = self.store.asked(), self.store.slots.copy()
        if admissions or len(self._coming) < n_before:
            self.store.publish(self._pool.slot_of)
        self._decision = self._thread.submit(self._decide, admissions, asked, slots)

    def wait(self) -> None:
        """Until nothing is left to do for good that goes on beside the first steps."""
        self.store.wait()

    def finish(self) -> None:
        """Wait until what the last settling handed over is done.

        Raises: what failed there.
        """
        if self._decision is not None:
            self._decision.result()

    def _decide(
        self, admissions: list[Admission], asked: Mapping[int, Ids], slots: Ids
    ) -> list[Admission]:
        """Begin the copies of these; who is to come next. `slots` are those of the step."""
        self._begin(admissions)
        if any(len(ids) > PROMPT_TOKENS for ids in asked.values()):
            self._pool.warm(self._counts(asked))
            return []
        if not asked:
            return []
        used = self._used(asked)
        self._count(used, slots)
        return self._pool.advance(used)

    def close(self) -> None:
        """The end: what was asked for is kept for the next start. A folder that cannot be written
        to is no fault."""
        self.finish()
        self._thread.shutdown()
        if self._heat_file is not None and self.n_asked:
            with suppress(OSError):
                save_heat(self._heat_file, merged(self._heat, self._pool.heat()))

    def _begin(self, admissions: list[Admission]) -> None:
        for a in admissions:
            self._coming.append((a, self.store.bring(a.block, a.expert, a.slot)))

    def _receive(self) -> bool:
        """Take in those whose copies are done; whether these were all."""
        waiting = []
        for admission, copy in self._coming:
            if copy.is_passed():
                self._pool.arrived(admission)
            else:
                waiting.append((admission, copy))
        self._coming = waiting
        return not waiting

    def _count(self, used: Ids, slots: Ids) -> None:
        is_any = used != NOBODY
        own = np.take_along_axis(slots, np.where(is_any, used, 0), axis=1)
        self.n_asked += int(is_any.sum())
        self.n_found += int(((own != NOBODY) & is_any).sum())

    def _used(self, asked: Mapping[int, Ids]) -> Ids:
        """(blocks, n) as the pool takes it; draft blocks may have been asked for more tokens."""
        n = max(ids.size for ids in asked.values())
        used = np.full((len(self._pool.slot_of), n), NOBODY, np.int32)
        for block, ids in asked.items():
            used[block, : ids.size] = ids.reshape(-1)
        return used

    def _counts(self, asked: Mapping[int, Ids]) -> NDArray[np.int64]:
        n_experts = self._pool.slot_of.shape[1]
        counts = np.zeros(self._pool.slot_of.shape, np.int64)
        for block, ids in asked.items():
            counts[block] = np.bincount(ids.ravel(), minlength=n_experts)
        return counts
