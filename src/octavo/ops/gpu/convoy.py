"""Groups of experts on their way to the card, for the layers of a long step.

A group fills one buffer of the ring. Those with which a layer begins are sent while the layer
before it still computes: the order of the layers is that of the last time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from octavo.ops.gpu.device import Tensor
from octavo.ops.gpu.experts import Bank, bank_of, expert_bytes
from octavo.ops.gpu.ring import Copy, Ring
from octavo.ops.weight import ExpertBank, slot_offsets

GROUP_EXPERTS = 32  # of a buffer: enough for a copy at full speed

Experts = NDArray[np.intp]


class Convoy:
    """Sends the experts of `banks` that are not on the card.

    Attributes:
        group: experts of a buffer.
    """

    def __init__(
        self,
        banks: Sequence[ExpertBank],
        sources: Sequence[Sequence[Tensor]],
        slots: NDArray[np.int32],
        n_experts: int,
        expert_bytes: int,
    ) -> None:
        """`sources`: bytes of each bank's matrices in main memory; `slots` (blocks, E): -1 for an
        expert that is not on the card, always the same array. Of the card's memory it takes
        `n_experts` times `expert_bytes`, the most that one takes, but at least twice.

        Raises:
            MemoryPlanError: the card has not so much memory.
        """
        self._banks, self._sources, self._slots = banks, sources, slots
        self.group = max(1, min(GROUP_EXPERTS, n_experts // 2))
        self._ring = Ring(max(2, n_experts // self.group), self.group * expert_bytes)
        self._last: int | None = None  # block of the step that is going on
        self._follows: dict[int, int | None] = {}  # block -> the next one, as of the last time
        self._ahead: tuple[int, deque[int]] | None = None  # (block, buffers)

    @property
    def n_first(self) -> int:
        """Experts that can be on their way at once."""
        return self.group * len(self._ring)

    @property
    def is_dry(self) -> bool:
        """Whether nothing is copied: for steps whose results nobody wants."""
        return self._ring.is_dry

    @is_dry.setter
    def is_dry(self, value: bool) -> None:
        self._ring.is_dry = value

    def send(self, block: int, group: Experts) -> int:
        """Begin to fill the next buffer -> its number; each is to be used once."""
        # Experts that follow each other in the file are one copy.
        ends = [*(np.flatnonzero(np.diff(group) > 1) + 1).tolist(), len(group)]
        copies: list[Copy] = []
        for source, start, size in zip(
            self._sources[block],
            self._offsets(block),
            expert_bytes(self._banks[block]),
            strict=True,
        ):
            at = 0
            for end in ends:
                first = int(group[at])
                own = source[first * size : (first + end - at) * size]
                copies.append((start + at * size, own))
                at = end
        return self._ring.send(copies)

    @contextmanager
    def opened(self, block: int, number: int) -> Iterator[Bank]:
        """The bank in a buffer, for work that is launched inside."""
        bank, buffer = self._banks[block], self._ring.open(number)
        # All gates, all ups, all downs, as they lie in the file.
        yield bank_of(bank, [buffer[i:] for i in self._offsets(block)], expert_bytes(bank))
        self._ring.close(number)

    def has_arrived(self, number: int) -> bool:
        return self._ring.has_arrived(number)

    def begin(self, block: int) -> Sequence[int]:
        """A layer of a long step begins -> the buffers of its first `n_first` experts, in order."""
        if self._last is not None:
            self._follows[self._last] = block if block > self._last else None
        self._last = block
        if self._ahead is not None and self._ahead[0] == block:
            sent, self._ahead = self._ahead[1], None
            return sent
        self._drop()
        return self._send_first(block)

    def go_on(self, block: int) -> None:
        """All of this layer was sent: begin with the one that followed it the last time."""
        following = self._follows.get(block)
        if following is not None:
            self._ahead = following, self._send_first(following)

    def end(self) -> None:
        """The step is not, or not any more, a long one."""
        if self._last is not None:
            self._follows[self._last] = None
        self.forget()

    def forget(self) -> None:
        """The slots have changed: what was sent ahead may be others than are wanted now."""
        self._last = None
        self._drop()

    def seconds(self, block: int) -> float:
        """Measure how long one expert takes, when all buffers have been used."""
        some = np.arange(min(self.group, self._slots.shape[1]))
        began = time.perf_counter()
        numbers = [self.send(block, some) for _ in range(len(self._ring))]
        for number in numbers:
            self._ring.wait(number)
            self._ring.close(number)
        return (time.perf_counter() - began) / (len(some) * len(numbers))

    def _send_first(self, block: int) -> deque[int]:
        absent = np.flatnonzero(self._slots[block] < 0)
        ends = range(0, min(len(absent), self.n_first), self.group)
        return deque(self.send(block, absent[i : i + self.group]) for i in ends)

    def _drop(self) -> None:
        for number in self._ahead[1] if self._ahead else ():
            self._ring.close(number)
        self._ahead = None

    def _offsets(self, block: int) -> list[int]:
        return [self.group * i for i in slot_offsets(expert_bytes(self._banks[block]))[:-1]]
