"""Experts in two places: all of them in main memory, some of them on the card too.

The card has a pool of equal slots, and for each block a table of who sits where. In steps of few
tokens it computes those that it holds, and the processor the others meanwhile. In longer ones the
others come to the card, in groups through a ring; of medium ones the processor takes some.

Tables change between steps only (`publish`), so both sides know the same for the whole of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.errors import UnsupportedError
from octavo.ops import cpu
from octavo.ops.gpu.arrange import add
from octavo.ops.gpu.branches import Branch
from octavo.ops.gpu.convoy import Convoy
from octavo.ops.gpu.device import (
    Tensor,
    allocate,
    empty,
    pinned,
    room_bytes,
    synchronise,
    to_device,
)
from octavo.ops.gpu.experts import (
    FEW_TOKENS,
    SPLIT,
    Bank,
    ManyTokens,
    bank_of,
    expert_bytes,
    matrices_of,
    weighted_sum,
)
from octavo.ops.gpu.flags import are_captured
from octavo.ops.gpu.handoff import Part, Room, Spent, give, join, take, time_experts
from octavo.ops.gpu.lanes import Lane, Mark
from octavo.ops.gpu.link import Link
from octavo.ops.gpu.pace import ALL_BY_LINK, TIMED_TOKENS, Pace, solve, take_few
from octavo.ops.gpu.pinning import Pinning
from octavo.ops.weight import ExpertBank, slot_offsets

# Up to here the processor is faster than bringing experts over the link, where nearly every token
# needs another one. Recorded steps are never longer.
HOST_TOKENS = 32
# Up to here it takes those with the fewest tokens. Beyond, each has too many for it to help, and
# to ask which they are would cost the card a wait in every layer.
SHARED_TOKENS = 1024
TAIL_TOKENS = 256  # of a prompt's piece whose experts are told afterwards

Ids = NDArray[np.int32]
Beside = Callable[[], Tensor] | None


@triton.jit
def _slots_of_blocks(
    experts, slots, places, out, n, first, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    """out (groups, n): each block's slot in groups `first` and on; group -1 is the pool."""
    g = first + tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(experts + i, mask=i < n, other=-1)
    slot = tl.load(slots + expert, mask=expert >= 0, other=-1)
    place = tl.load(places + expert, mask=expert >= 0, other=-1) - g * GROUP
    place = tl.where((place >= 0) & (place < GROUP), place, -1)
    tl.store(out + tl.program_id(1) * n + i, tl.where(g < 0, slot, place), mask=i < n)


class Split:
    """The routed experts of a model; makes `ops.gpu.experts` compute those of `banks` so.

    Attributes:
        slots: (blocks, experts) int32: the slot of each expert on the card, else -1, as the steps
            see it.
        n_slots, slot_bytes: of the pool.
        spent: in steps of few tokens, since the start.
    """

    def __init__(
        self,
        banks: Sequence[ExpertBank],
        ring_bytes: int,
        pinned_bytes: int = 0,
        shares: bool = True,
    ) -> None:
        """Takes so much memory of the card; `pinned_bytes`: most of main memory to pin.

        The pool has one slot, where nobody sits, until `make_pool`. Without `shares` the processor
        takes nothing in steps of many tokens: how much would follow from measured times, which
        differ from start to start.

        Raises:
            MemoryPlanError: the card has not so much memory.
            UnsupportedError: a format of experts that the processor does not compute fast.
        """
        _check_formats(banks)
        # Without their memo, which points back here: what nobody uses any more is to go at once.
        self._banks = tuple(replace(bank, memo={}) for bank in banks)
        n_experts = banks[0].down.shape[0]
        self._offsets = [slot_offsets(expert_bytes(bank)) for bank in banks]
        self.slot_bytes = max(offsets[-1] for offsets in self._offsets)
        self.n_slots = 1
        self._pool = allocate(self.slot_bytes)
        # Slots; places in the groups of a long step; the same where the processor takes some.
        tables = pinned(3 * len(banks) * n_experts, torch.int32).view(3, len(banks), n_experts)
        self._host_tables = tables.fill_(-1)
        self._tables = empty(*tables.shape, dtype=torch.int32)
        self.slots: Ids = tables[0].numpy()
        self._sources = [[_bytes_of(w.data) for w in matrices_of(bank)] for bank in banks]
        self._pooled = [self._bank_in_slots(i) for i in range(len(banks))]
        self._convoy = Convoy(
            self._banks, self._sources, self.slots, ring_bytes // self.slot_bytes, self.slot_bytes
        )
        self._lane = Lane()
        is_all_pinned = pinned_bytes >= sum(w.data.size for b in banks for w in matrices_of(b))
        self.link = Link(self._banks, self._sources) if shares and is_all_pinned else None
        self._is_tuned = False
        self._rooms: dict[int, Room] = {}  # by most tokens
        self.pace = None if shares else ALL_BY_LINK  # None: it is measured
        self._measured: tuple[bool, Pace] | None = None
        self._pinning = Pinning()
        self._tails: dict[int, Tensor] = {}
        self._asked: dict[int, Ids] = {}
        self.spent = Spent()
        self.publish(self.slots)
        for i, bank in enumerate(banks):
            bank.memo[SPLIT] = (self, i)
        data = [w.data for bank in banks for w in matrices_of(bank)]
        self._pinning.pin_later(data, pinned_bytes)

    # Between steps

    def room_bytes(self, limit_bytes: int, free_bytes: int) -> int | None:
        """What the card has left for a pool: see `device.room_bytes`."""
        return room_bytes(limit_bytes, free_bytes)

    def make_pool(self, n_bytes: int) -> None:
        """The pool, once, before anything sits in it and any step is recorded.

        Raises:
            MemoryPlanError: the card has not so much memory.
        """
        self.n_slots = n_bytes // self.slot_bytes
        self._pool = allocate(self.n_slots * self.slot_bytes)
        self._pooled = [self._bank_in_slots(i) for i in range(len(self._banks))]
        is_free = Mark()
        is_free.set()  # behind whatever used this memory before
        self._lane.hold(is_free)

    def publish(self, slots: Ids) -> None:
        """From the next step on, these are the slots: (blocks, experts) int32."""
        np.copyto(self.slots, slots)
        self._tables[0].copy_(self._host_tables[0], non_blocking=True)
        self._has_places = False
        self._convoy.forget()

    @contextmanager
    def rehearsing(self) -> Iterator[None]:
        """Steps inside are run for their kernels and memory: long ones bring no experts."""
        self._convoy.is_dry = True
        try:
            yield
        finally:
            self._convoy.is_dry = False
            self._asked = {}  # nobody's questions

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
        # Those of a long step lie where the next one's will.
        return {b: ids.copy() if len(ids) > HOST_TOKENS else ids for b, ids in asked.items()}

    def tune(self) -> None:
        """After a step: measure once how many experts the link should take; none where the system
        refused to pin a part, since the card could not read that."""
        room = self._rooms.get(HOST_TOKENS)
        if self._is_tuned or self.link is None or room is None or not self._pinning.is_whole:
            return
        self._is_tuned = True
        if are_captured():
            self._measure_link(self.link, room.n_used)

    def wait(self) -> None:
        """Until all is pinned that can be."""
        self._pinning.wait()

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

    def note(self, parts: Sequence[Part], spent: Spent) -> None:
        """Parts of a step on one desk were computed: remember what they asked for."""
        self.spent.add(spent)
        ids = parts[0].desk.ids.numpy().copy()  # the next step's lie in the same place
        self._asked |= {part.block: ids[part.block] for part in parts}

    def _few(self, block: int, x: Tensor, ids: Tensor, weights: Tensor, beside: Beside) -> Tensor:
        self._convoy.end()
        desk = self._room(HOST_TOKENS, x, ids).desk(len(x))
        part, slots = Part(self._banks[block], block, desk, self.note), self._tables[0, block]
        link = self.link if len(x) <= FEW_TOKENS else None
        linked = give(part, x, ids, weights, slots, None if link is None else link.shares)
        fetch = None
        if link is not None:  # beside the rest: it waits for the link, which waits for nobody
            fetch = Branch(partial(link.weighted_sum, block, x, linked, weights))
        extra = None if beside is None else beside()
        here = weighted_sum(x, self._pooled[block], ids, weights, slots)
        return take(part, here, extra, None if fetch is None else fetch.join())

    def _room(self, n_tokens: int, x: Tensor, ids: Tensor) -> Room:
        if n_tokens not in self._rooms:
            n_blocks = len(self._banks) if n_tokens == HOST_TOKENS else 1
            self._rooms[n_tokens] = Room(n_blocks, n_tokens, x.shape[1], ids.shape[1])
        return self._rooms[n_tokens]

    def _place(self) -> None:
        """Who is not on the card comes in this order: long steps alone ask for it."""
        is_absent = self.slots < 0
        places = np.where(is_absent, np.cumsum(is_absent, axis=1) - 1, -1)
        np.copyto(self._host_tables[1].numpy(), places, casting="same_kind")
        self._tables[1].copy_(self._host_tables[1], non_blocking=True)
        self._has_places = True

    def _many(self, block: int, x: Tensor, ids: Tensor, weights: Tensor, beside: Beside) -> Tensor:
        if not self._has_places:
            self._place()
        convoy, n_first = self._convoy, self._convoy.n_first
        if convoy.is_dry:  # what later steps need is allocated now
            self._room(SHARED_TOKENS, x, ids)
        absent, part = np.flatnonzero(self.slots[block] < 0), None
        if len(absent) > n_first and len(x) <= SHARED_TOKENS and not convoy.is_dry:
            desk = self._room(SHARED_TOKENS, x, ids).desk(len(x))
            part = Part(self._banks[block], 0, desk, lambda parts, spent: None)
            give(part, x, ids, weights, self._tables[0, block])
        many = ManyTokens(x, self._pooled[block], ids, weights, has_gaps=part is not None)
        sent = convoy.begin(block)
        extra = None if beside is None else beside()
        self._use_first(block, many, sent)
        is_ours = np.zeros(len(self.slots[block]), bool)
        if part is None:
            self._stream(block, many, absent[n_first:], self._tables[1, block])
        else:
            is_ours, others = self._share(block, part, absent[n_first:], sent)
            self._stream(block, many, others, self._tables[2, block])
        convoy.go_on(block)
        self._keep_tail(block, ids)
        here = many.total()
        if part is not None and is_ours.any():
            part.compute(is_ours)
            return join(part.desk, here, extra)
        return here if extra is None else add(here, extra)

    def _stream(
        self, block: int, many: ManyTokens, experts: NDArray[np.intp], places: Tensor
    ) -> None:
        """Bring these, group after group, and use them; `places` (E,) are theirs on the card."""
        size, n_before = self._convoy.group, self._convoy.n_first // self._convoy.group
        groups = [experts[i : i + size] for i in range(0, len(experts), size)]
        slots_of = self._slots_of_blocks(block, many, n_before, len(groups), places)
        for group, of_group in zip(groups, slots_of, strict=True):
            with self._convoy.opened(block, self._convoy.send(block, group)) as bank:
                many.add(bank, of_group)

    def _use_first(self, block: int, many: ManyTokens, sent: Sequence[int]) -> None:
        """The pool, and the groups that were sent before."""
        slots_of = self._slots_of_blocks(block, many, -1, 1 + len(sent), self._tables[1, block])
        many.add(self._pooled[block], slots_of[0])
        for number, of_group in zip(sent, slots_of[1:], strict=True):
            with self._convoy.opened(block, number) as bank:
                many.add(bank, of_group)

    def _slots_of_blocks(
        self, block: int, many: ManyTokens, first: int, n_groups: int, places: Tensor
    ) -> Tensor:
        experts, size = many.blocks.experts, 256
        n, slots = len(experts), self._tables[0, block]
        out = empty(n_groups, n, dtype=torch.int32)
        if n_groups:
            _slots_of_blocks[(triton.cdiv(n, size), n_groups)](
                experts, slots, places, out, n, first, self._convoy.group, size
            )
        return out

    # Steps that processor and link share

    def _share(
        self, block: int, part: Part, experts: NDArray[np.intp], sent: Sequence[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Of these experts: (those that the processor computes, as a mask of all; those that come).

        What comes gets its places in the third table.
        """
        part.desk.mark.wait()
        n_experts = len(self.slots[block])
        counts = np.bincount(part.ids.ravel(), minlength=n_experts)[experts]
        n_coming = self._convoy.group * sum(not self._convoy.has_arrived(i) for i in sent)
        is_ours = np.zeros(n_experts, bool)
        is_ours[experts[take_few(counts, n_coming, self._pace_at(block))]] = True
        others = experts[(counts > 0) & ~is_ours[experts]]
        places = self._host_tables[2, block].numpy()
        places[:] = -1
        places[others] = self._convoy.n_first + np.arange(len(others))
        self._tables[2, block].copy_(self._host_tables[2, block], non_blocking=True)
        return is_ours, others

    def _pace_at(self, block: int) -> Pace:
        if self.pace is not None:
            return self.pace
        if self._measured is None or self._pinning.is_done != self._measured[0]:
            self._measured = self._pinning.is_done, self._measure(block)
        return self._measured[1]

    def _measure(self, block: int) -> Pace:
        """Time a few copies and products: some 0.1 s, when all groups are used."""
        synchronise()
        link = self._convoy.seconds(block)
        n = max(1, len(self.slots[block]) // 2)
        few, more = (time_experts(self._banks, n, each) for each in TIMED_TOKENS)
        tokens, more_tokens = (n * each for each in TIMED_TOKENS)
        return Pace(link, *solve((n, tokens, few), (n, more_tokens, more)))

    def _measure_link(self, link: Link, n_used: int) -> None:
        slots, weights = self.slots[0], empty(1, n_used).fill_(1.0)
        there, absent = np.flatnonzero(slots >= 0)[:n_used], np.flatnonzero(slots < 0)[:n_used]

        chosen = [
            to_device(np.resize([*there[:n], *absent[: n_used - n]], (1, n_used)).astype(np.int32))
            for n in range(n_used)
        ]

        def here(x: Tensor, n: int) -> Tensor:
            return weighted_sum(x, self._pooled[0], chosen[n], weights, self._tables[0, 0])

        link.share(link.measure(n_used, here))

    def _keep_tail(self, block: int, ids: Tensor) -> None:
        if block not in self._tails:
            self._tails[block] = pinned(TAIL_TOKENS * ids.shape[1], torch.int32)
        n = min(TAIL_TOKENS, len(ids))
        tail = self._tails[block][: n * ids.shape[1]].view(n, -1)
        tail.copy_(ids[-n:], non_blocking=True)
        self._asked[block] = tail.numpy()

    def _bank_in_slots(self, block: int) -> Bank:
        """Gate, up and down of an expert one after the other."""
        offsets = self._offsets[block][:-1]
        starts = [self._pool[offset:] for offset in offsets]
        return bank_of(self._banks[block], starts, [self.slot_bytes] * len(offsets))


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
