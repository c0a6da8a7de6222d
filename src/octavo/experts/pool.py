"""Slots for experts and who sits in them: admission by how often and how lately one was asked for.

Between two tokens the pool sees which experts the last one used, and names a few missing ones to
bring. An expert that is asked for once is no reason: half of them are not wanted again soon. So
one is brought when it is asked for again within some tokens, if it scores above the one whose
place it takes. What is brought is bounded, for each block and in all, because the copies share the
link and the memory with the work itself.

The score is the sum of two counts that fade, a slow one (how often) and a fast one (how lately).
Everything is deterministic: equal scores give way in the order of block and expert.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.record import dataclass

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]

NOBODY = -1
_SOME_SLOTS = 64  # that are looked at first for one to be emptied: more than come after a token


@dataclass(frozen=True)
class Rules:
    """How the pool decides. The defaults are compared by benchmarks/expert_hits.py."""

    most_per_block: int = 2  # experts brought for one block after a token
    most_bytes: int = 30_000_000  # brought in all after a token
    touch_tokens: int = 16  # asked for again within so many: worth bringing
    slow_half_life: float = 64.0  # tokens until how often counts half
    fast_half_life: float = 8.0  # tokens until how lately counts half
    fast_weight: float = 2.0


@dataclass(frozen=True)
class Admission:
    """An expert to bring into a slot, and who leaves it: (block, expert), or None."""

    block: int
    expert: int
    slot: int
    leaves: tuple[int, int] | None


class ExpertPool:
    """The table of slots and its statistics. Not for several threads at once.

    Attributes:
        slot_of: (blocks, experts) int32, the slot of an expert that is there, else -1. An expert
            that was named by `advance` is there once `arrived` says so.
    """

    def __init__(
        self,
        n_blocks: int,
        n_experts: int,
        n_slots: int,
        slot_bytes: int,
        *,
        floor: int = 0,
        rules: Rules | None = None,
    ) -> None:
        """`floor`: slots that a block keeps whatever others want.

        Raises:
            ValueError: the slots are fewer than the floors of all blocks.
        """
        if n_slots < floor * n_blocks or floor > n_experts:
            raise ValueError(f"{n_slots} slots cannot keep {floor} for each of {n_blocks} blocks")
        self.slot_bytes = slot_bytes
        self.floor = floor
        self.rules = rules or Rules()
        self.slot_of: Ids = np.full((n_blocks, n_experts), NOBODY, np.int32)
        self._owner = np.full(n_slots, NOBODY, np.int64)  # flat expert, also while it is coming
        self._coming: dict[int, Admission] = {}  # by slot
        self._slow: Floats = np.zeros((n_blocks, n_experts))
        self._fast: Floats = np.zeros((n_blocks, n_experts))
        self._asked: Floats = np.zeros((n_blocks, n_experts))  # never fades; kept as heat
        self._touched = np.full((n_blocks, n_experts), -(1 << 40), np.int64)
        self._token = 0

    @property
    def n_slots(self) -> int:
        return len(self._owner)

    @property
    def n_coming(self) -> int:
        """Experts that were named and have not arrived."""
        return len(self._coming)

    def hits(self, used: Ids) -> NDArray[np.bool_]:
        """(blocks, used) bool: whether each of the experts `used` (blocks, used) is there."""
        found: NDArray[np.bool_] = np.take_along_axis(self.slot_of, used, axis=1) != NOBODY
        return found

    def seed(self, heat: NDArray[np.floating] | None = None) -> list[Admission]:
        """Fill all empty slots at a start, without bounds: the hottest, each block its floor first.

        `heat` (blocks, experts) is uses a token in earlier runs; without it the blocks share
        evenly.
        """
        n_blocks, n_experts = self.slot_of.shape
        if heat is not None:
            # What the slow count would be if the runs had never ended.
            self._slow += heat / (1 - 0.5 ** (1 / self.rules.slow_half_life))
        absent = self._absent()
        ranks = np.argsort(np.argsort(-self._slow, axis=1, kind="stable"), axis=1)
        # Floors first, then by heat; without any, by rank, which spreads over all blocks.
        order = np.lexsort(
            (
                np.arange(n_blocks * n_experts),
                ranks.ravel(),
                -self._slow.ravel(),
                ranks.ravel() >= self.floor,
            )
        )
        free = np.flatnonzero(self._owner == NOBODY)
        chosen = order[absent.ravel()[order]][: len(free)]
        pairs = zip(chosen.tolist(), free.tolist(), strict=False)
        return [self._admit(flat, slot, None) for flat, slot in pairs]

    def warm(self, counts: NDArray[np.integer]) -> None:
        """Count uses without bringing anything: `counts` (blocks, experts) of a prompt's end."""
        self._slow += counts
        self._fast += counts > 0

    def advance(self, used: Ids) -> list[Admission]:
        """After a step that used these experts: what to bring now.

        `used` (blocks, n) int32 may hold an expert several times, as steps of several tokens do,
        and -1 for none. Who leaves is gone from `slot_of` at once, so that nothing reads a slot
        that is written.
        """
        rules, n_experts = self.rules, self.slot_of.shape[1]
        self._token += 1
        self._slow *= 0.5 ** (1 / rules.slow_half_life)
        self._fast *= 0.5 ** (1 / rules.fast_half_life)
        flat = np.unique((np.arange(len(used))[:, None] * n_experts + used)[used >= 0])
        touched = self._touched.reshape(-1)
        again = self._token - touched[flat] <= rules.touch_tokens
        for counts in (self._asked, self._slow, self._fast):
            counts.reshape(-1)[flat] += 1
        touched[flat] = self._token
        return self._bring(flat[again])

    def _bring(self, flat: NDArray[np.int64]) -> list[Admission]:
        """Of these experts, numbered through all blocks, those that are worth it."""
        n_blocks, n_experts = self.slot_of.shape
        score = (self._slow + self.rules.fast_weight * self._fast).ravel()
        flat = flat[self._absent().ravel()[flat]]
        wanted = flat[np.argsort(-score[flat], kind="stable")]
        # What is still on its way from earlier counts: a slow link is not to be given a queue.
        most = self.rules.most_bytes // max(self.slot_bytes, 1) - self.n_coming
        brought: list[Admission] = []
        of_block = np.zeros(n_blocks, np.int64)
        slots = _Slots(self._owner, self._coming, self._token, self._touched, score, n_experts)
        for want in wanted.tolist():
            if len(brought) >= most:
                break
            block = want // n_experts
            if of_block[block] >= self.rules.most_per_block:
                continue
            slot = slots.give(want, self.floor)
            if slot is not None:
                of_block[block] += 1
                brought.append(self._admit(want, slot, self._leave(slot)))
        return brought

    def arrived(self, admission: Admission) -> None:
        """The copy is done. One whose slot was taken away meanwhile is forgotten."""
        if self._coming.get(admission.slot) is admission:
            del self._coming[admission.slot]
            self.slot_of[admission.block, admission.expert] = admission.slot

    def resize(self, n_slots: int) -> None:
        """More or fewer slots; those behind the end are emptied. The floors must still fit.

        Raises:
            ValueError: they do not.
        """
        if n_slots < self.floor * len(self.slot_of):
            raise ValueError(f"{n_slots} slots are below the floor of {self.floor} a block")
        for slot in range(n_slots, self.n_slots):
            self._coming.pop(slot, None)
            self._leave(slot)
        kept = self._owner[:n_slots]
        self._owner = np.full(n_slots, NOBODY, np.int64)
        self._owner[: len(kept)] = kept

    def heat(self) -> NDArray[np.float32]:
        """(blocks, experts): uses a token since the start. For `seed` in the next run."""
        return (self._asked / max(self._token, 1)).astype(np.float32)

    def _absent(self) -> NDArray[np.bool_]:
        """(blocks, experts) bool: neither there nor coming."""
        absent: NDArray[np.bool_] = self.slot_of == NOBODY
        for admission in self._coming.values():
            absent[admission.block, admission.expert] = False
        return absent

    def _admit(self, flat: int, slot: int, leaves: tuple[int, int] | None) -> Admission:
        block, expert = divmod(flat, self.slot_of.shape[1])
        self._owner[slot] = flat
        admission = Admission(block, expert, slot, leaves)
        self._coming[slot] = admission
        return admission

    def _leave(self, slot: int) -> tuple[int, int] | None:
        flat = int(self._owner[slot])
        if flat == NOBODY:
            return None
        block, expert = divmod(flat, self.slot_of.shape[1])
        self.slot_of[block, expert] = NOBODY
        self._owner[slot] = NOBODY
        return block, expert


class _Slots:
    """Places to give away after one token."""

    def __init__(
        self,
        owner: NDArray[np.int64],
        coming: dict[int, Admission],
        token: int,
        touched: NDArray[np.int64],
        score: Floats,
        n_experts: int,
    ) -> None:
        self._free = np.flatnonzero(owner == NOBODY).tolist()[::-1]
        self._block = np.where(owner == NOBODY, NOBODY, owner // n_experts)
        self._counts = np.bincount(self._block[owner != NOBODY], minlength=len(touched))
        # Who was used by this token is likely to be wanted by the next one.
        stays = (owner == NOBODY) | (touched.ravel()[owner] == token)
        stays[list(coming)] = True
        self._loss = np.where(stays, np.inf, score[owner])
        self._score, self._n_experts = score, n_experts
        self._n_left = int((~stays).sum())  # slots that may still be given away
        self._cheapest = self._sorted(_SOME_SLOTS)

    def _sorted(self, n: int) -> list[int]:
        """The slots of the n smallest losses, and of those as small; equal ones in their order.
        Without those that stay."""
        loss = self._loss
        if n < len(loss):
            slots = np.flatnonzero(loss <= np.partition(loss, n)[n])
        else:
            slots = np.arange(len(loss))
        slots = slots[np.isfinite(loss[slots])]
        order: list[int] = slots[np.argsort(loss[slots], kind="stable")].tolist()
        return order

    def _least(self, block: int, floor: int) -> int | None:
        """The slot whose expert is missed least, of those that may leave for one of this block."""
        for slot in self._cheapest:
            own = self._block[slot]
            if own == block or self._counts[own] > floor:
                return slot
        if len(self._cheapest) < self._n_left:
            self._cheapest = self._sorted(len(self._loss))
            self._n_left = len(self._cheapest)
            return self._least(block, floor)
        return None

    def give(self, want: int, floor: int) -> int | None:
        """A slot for this expert: an empty one, or the least wanted if it is wanted less."""
        block = want // self._n_experts
        if self._free:
            slot = int(self._free.pop())
        else:
            found = self._least(block, floor)
            if found is None or self._loss[found] >= self._score[want]:
                return None
            slot = found
            self._cheapest.remove(slot)
            self._n_left -= 1
            self._counts[self._block[slot]] -= 1
        self._counts[block] += 1
        self._block[slot] = block
        self._loss[slot] = np.inf
        return slot


def run(
    pool: ExpertPool, trace: Sequence[Ids] | NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Play a trace (tokens, blocks, used): (hits of each token, experts brought after it).

    What is brought arrives before the next token.
    """
    hits, brought = np.zeros(len(trace), np.int64), np.zeros(len(trace), np.int64)
    for i, used in enumerate(trace):
        hits[i] = pool.hits(used).sum()
        admissions = pool.advance(used)
        brought[i] = len(admissions)
        for admission in admissions:
            pool.arrived(admission)
    return hits, brought
