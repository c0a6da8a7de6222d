"""Experts in two places: all of them in main memory, some of them on the card too.

The card has a pool of equal slots, and for each block a table of who sits where. In steps of few
tokens it computes those that it holds, and the processor the others meanwhile. In longer ones the
others come to the card, in groups through a ring, and nobody else computes.

Tables change between steps only (`publish`), so both sides know the same for the whole of one.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.errors import UnsupportedError
from octavo.ops import cpu
from octavo.ops.gpu.arrange import add
from octavo.ops.gpu.device import Tensor, empty, out_of_memory, pinned
from octavo.ops.gpu.experts import (
    SPLIT,
    Bank,
    ManyTokens,
    bank_of,
    expert_bytes,
    matrices_of,
    weighted_sum,
)
from octavo.ops.gpu.handoff import Desk, Part, give, take
from octavo.ops.gpu.lanes import Lane, Mark
from octavo.ops.gpu.pinning import Pinning
from octavo.ops.gpu.ring import Copy, Ring
from octavo.ops.weight import ExpertBank, slot_offsets

# Up to here the processor is faster than bringing experts over the link, where nearly every token
# needs another one. Recorded steps are never longer.
HOST_TOKENS = 32
GROUP_EXPERTS = 32  # of a buffer of the ring: enough for a copy at full speed
TAIL_TOKENS = 256  # of a prompt's piece whose experts are told afterwards

Ids = NDArray[np.int32]
Beside = Callable[[], Tensor] | None


@triton.jit
def _slots_of_blocks(experts, slots, places, out, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """out (1 + groups, n): of each block of pairs its slot in the pool, then in each group."""
    g = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(experts + i, mask=i < n, other=-1)
    slot = tl.load(slots + expert, mask=expert >= 0, other=-1)
    place = tl.load(places + expert, mask=expert >= 0, other=-1) - (g - 1) * GROUP
    place = tl.where((place >= 0) & (place < GROUP), place, -1)
    tl.store(out + g * n + i, tl.where(g == 0, slot, place), mask=i < n)


class Split:
    """The routed experts of a model; makes `ops.gpu.experts` compute those of `banks` so.

    Attributes:
        slots: (blocks, experts) int32: the slot of each expert on the card, else -1, as the steps
            see it.
        n_slots, slot_bytes: of the pool.
    """

    def __init__(
        self,
        banks: Sequence[ExpertBank],
        pool_bytes: int,
        ring_bytes: int,
        pinned_bytes: int = 0,
    ) -> None:
        """Takes that much memory of the card; `pinned_bytes`: most of main memory to pin.

        Raises:
            MemoryPlanError: the card has not so much memory.
            UnsupportedError: a format of experts that the processor does not compute fast.
        """
        _check_formats(banks)
        self._banks = tuple(banks)
        n_experts = banks[0].down.shape[0]
        self._offsets = [slot_offsets(expert_bytes(bank)) for bank in banks]
        self.slot_bytes = max(offsets[-1] for offsets in self._offsets)
        self.n_slots = pool_bytes // self.slot_bytes
        ring_experts = ring_bytes // self.slot_bytes
        self._group = max(1, min(GROUP_EXPERTS, ring_experts // 2))
        try:
            self._pool = empty(self.n_slots * self.slot_bytes, dtype=torch.uint8)
            n_buffers = max(2, ring_experts // self._group)
            self._ring = Ring(n_buffers, self._group * self.slot_bytes)
        except torch.OutOfMemoryError as error:
            raise out_of_memory(pool_bytes + ring_bytes) from error
        # (slots, places in the groups of a long step), each (blocks, experts).
        tables = pinned(2 * len(banks) * n_experts, torch.int32).view(2, len(banks), n_experts)
        self._host_tables = tables.fill_(-1)
        self._tables = empty(*tables.shape, dtype=torch.int32)
        self.slots: Ids = tables[0].numpy()
        self._sources = [[_bytes_of(w.data) for w in matrices_of(bank)] for bank in banks]
        self._pooled = [self._bank_in_slots(i) for i in range(len(banks))]
        self._lane = Lane()
        self._desks: dict[tuple[int, int, int], Desk] = {}
        self._tails: dict[int, Ids] = {}
        self._asked: dict[int, Ids] = {}
        self.publish(self.slots)
        for i, bank in enumerate(banks):
            bank.memo[SPLIT] = (self, i)
        self._pinning = Pinning()
        data = [w.data for bank in banks for w in matrices_of(bank)]
        self._pinning.pin_later(data, pinned_bytes)

    # Between steps

    def publish(self, slots: Ids) -> None:
        """From the next step on, these are the slots: (blocks, experts) int32."""
        np.copyto(self.slots, slots)
        is_absent = self.slots < 0
        places = np.where(is_absent, np.cumsum(is_absent, axis=1) - 1, -1)
        np.copyto(self._host_tables[1].numpy(), places, casting="same_kind")
        self._tables.copy_(self._host_tables, non_blocking=True)

    def bring(self, block: int, expert: int, slot: int) -> Mark:
        """Copy an expert into a slot, which no table may name -> a mark behind the copy."""
        mark = Mark()
        self._lane.copy(self._copies(block, expert, slot))
        self._lane.set(mark)
        return mark

    def _copies(self, block: int, expert: int, slot: int) -> list[tuple[Tensor, Tensor]]:
        """(place in the slot, bytes in main memory) of each of the expert's matrices."""
        start, copies = slot * self.slot_bytes, []
        sizes, offsets = expert_bytes(self._banks[block]), self._offsets[block][:-1]
        for source, offset, size in zip(self._sources[block], offsets, sizes, strict=True):
            target = self._pool[start + offset : start + offset + size]
            copies.append((target, source[expert * size : (expert + 1) * size]))
        return copies

    def asked(self) -> dict[int, Ids]:
        """Of the steps since the last call: block -> ids (T, k); of a long one its last tokens."""
        asked, self._asked = self._asked, {}
        return asked

    # In a step

    def run(
        self, block: int, x: Tensor, ids: Tensor, weights: Tensor, beside: Beside = None
    ) -> Tensor:
        """See `octavo.ops.experts`."""
        if len(x) == 0:
            return empty(0, self._pooled[block].down.rows)
        ids, weights = ids.contiguous(), weights.contiguous()
        run = self._few if len(x) <= HOST_TOKENS else self._many
        return run(block, x, ids, weights, beside)

    def note(self, part: Part) -> None:
        """A part of a step was computed: remember what it asked for."""
        self._asked[part.block] = part.ids

    def _few(self, block: int, x: Tensor, ids: Tensor, weights: Tensor, beside: Beside) -> Tensor:
        part = Part(self._banks[block], block, self.slots[block], self._desk(x, ids), self.note)
        give(part, x, ids, weights)
        extra = None if beside is None else beside()
        here = weighted_sum(x, self._pooled[block], ids, weights, self._tables[0, block])
        return take(part, here, extra)

    def _desk(self, x: Tensor, ids: Tensor) -> Desk:
        key = (*x.shape, ids.shape[1])
        if key not in self._desks:
            self._desks[key] = Desk(len(self._banks), *key)
        return self._desks[key]

    def _many(self, block: int, x: Tensor, ids: Tensor, weights: Tensor, beside: Beside) -> Tensor:
        groups = self._groups(block)
        sent = deque(self._send(block, group) for group in groups[: len(self._ring)])
        many = ManyTokens(x, self._pooled[block], ids, weights)
        slots_of = self._slots_of_blocks(block, many.blocks.experts, len(groups))
        many.add(self._pooled[block], slots_of[0])
        extra = None if beside is None else beside()
        for i, of_group in enumerate(slots_of[1:]):
            number = sent.popleft()
            many.add(self._bank_in_buffer(block, self._ring.open(number)), of_group)
            self._ring.close(number)
            if i + len(self._ring) < len(groups):
                sent.append(self._send(block, groups[i + len(self._ring)]))
        self._keep_tail(block, ids)
        return many.total() if extra is None else add(many.total(), extra)

    def _groups(self, block: int) -> list[NDArray[np.intp]]:
        """Experts that are not on the card, in the groups in which they come."""
        absent = np.flatnonzero(self.slots[block] < 0)
        return [absent[i : i + self._group] for i in range(0, len(absent), self._group)]

    def _send(self, block: int, group: NDArray[np.intp]) -> int:
        """Experts that follow each other in the file are one copy."""
        ends = [*(np.flatnonzero(np.diff(group) > 1) + 1).tolist(), len(group)]
        starts = self._buffer_offsets(block)
        copies: list[Copy] = []
        for source, start, size in zip(
            self._sources[block], starts, expert_bytes(self._banks[block]), strict=True
        ):
            at = 0
            for end in ends:
                first = int(group[at])
                own = source[first * size : (first + end - at) * size]
                copies.append((start + at * size, own))
                at = end
        return self._ring.send(copies)

    def _slots_of_blocks(self, block: int, experts: Tensor, n_groups: int) -> Tensor:
        n, size = len(experts), 256
        out = empty(1 + n_groups, n, dtype=torch.int32)
        slots, places = self._tables[0, block], self._tables[1, block]
        _slots_of_blocks[(triton.cdiv(n, size), 1 + n_groups)](
            experts, slots, places, out, n, self._group, size
        )
        return out

    def _keep_tail(self, block: int, ids: Tensor) -> None:
        if block not in self._tails:
            self._tails[block] = pinned(TAIL_TOKENS * ids.shape[1], torch.int32).numpy()
        n = min(TAIL_TOKENS, len(ids))
        tail = self._tails[block][: n * ids.shape[1]].reshape(n, -1)
        torch.from_numpy(tail).copy_(ids[-n:], non_blocking=True)
        self._asked[block] = tail

    def _bank_in_slots(self, block: int) -> Bank:
        """Gate, up and down of an expert one after the other."""
        offsets = self._offsets[block][:-1]
        starts = [self._pool[offset:] for offset in offsets]
        return bank_of(self._banks[block], starts, [self.slot_bytes] * len(offsets))

    def _bank_in_buffer(self, block: int, buffer: Tensor) -> Bank:
        """All gates, all ups, all downs, as they lie in the file."""
        bank = self._banks[block]
        starts = [buffer[offset:] for offset in self._buffer_offsets(block)]
        return bank_of(bank, starts, expert_bytes(bank))

    def _buffer_offsets(self, block: int) -> list[int]:
        return [self._group * offset for offset in self._offsets[block][:-1]]


def _check_formats(banks: Sequence[ExpertBank]) -> None:
    names = {w.format for bank in banks for w in matrices_of(bank)}
    if slow := names - cpu.fast_formats():
        raise UnsupportedError(
            f"Experts in the format {', '.join(sorted(slow))} cannot be computed by the processor",
            "Put the whole model on the card, or use another file of it.",
        )


def _bytes_of(data: NDArray[np.uint8]) -> Tensor:
    with warnings.catch_warnings():  # of mapped files: they are only read
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(data)
