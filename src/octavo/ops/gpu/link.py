"""Experts that the card reads over the link, in main memory, while the processor computes others.

In a step of few tokens the processor alone would leave the link idle. So of the experts that are
not on the card, the last ones of a token's choice are the card's, as many as pay: that is measured
with both at work, since they share the memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops import cpu
from octavo.ops.gpu.device import Tensor, empty, pinned, synchronise, to_device
from octavo.ops.gpu.experts import bank_of, expert_bytes, weighted_sum
from octavo.ops.gpu.flags import Flags
from octavo.ops.weight import ExpertBank

MOST_LINKED = 4  # of a token: no link is as fast as half of the memory
_REPEATED = 5
_LEAST_GAIN = 0.03  # of the time: less is noise

Shares = NDArray[np.int32]


class Link:
    """The way from the kernels to the experts of `banks` in main memory, which has to be pinned.

    Attributes:
        shares: (k + 1,) int32 on the card: of a token's n experts that are not there, `shares[n]`
            are read over the link.
    """

    def __init__(self, banks: Sequence[ExpertBank], sources: Sequence[Sequence[Tensor]]) -> None:
        """`sources`: bytes of each bank's matrices in main memory."""
        self._banks = banks
        self._linked = [
            bank_of(bank, [source.data_ptr() for source in own], expert_bytes(bank))
            for bank, own in zip(banks, sources, strict=True)
        ]
        n_experts = banks[0].down.shape[0]
        self._host_shares = pinned(n_experts + 1, torch.int32).zero_()
        self.shares = empty(n_experts + 1, dtype=torch.int32)
        self.share([])

    def share(self, shares: Sequence[int]) -> None:
        """From the next step on: `shares[n]` of n; nothing beyond the end of the list."""
        self._host_shares.zero_()
        self._host_shares[: len(shares)] = torch.tensor(shares, dtype=torch.int32)
        self.shares.copy_(self._host_shares, non_blocking=True)

    def weighted_sum(self, block: int, x: Tensor, linked: Tensor, weights: Tensor) -> Tensor:
        """As `experts.weighted_sum`, of ids (T, k) that are not -1."""
        return weighted_sum(x, self._linked[block], linked, weights)

    def measure(self, block: int, n_used: int, here: Callable[..., object]) -> list[int]:
        """What `share` should be given where a token has `n_used` experts; some 30 ms.

        `here(x, n)` lets the card compute n experts that it holds.
        """
        shares = [0, 0]  # one alone is sooner done by the processor
        for n in range(2, n_used + 1):
            beside = partial(here, n=n_used - n)
            seconds = [self._time(block, n, k, beside) for k in range(min(n, MOST_LINKED + 1))]
            best = int(np.argmin(seconds))
            shares.append(best if seconds[best] < (1 - _LEAST_GAIN) * seconds[0] else 0)
        return shares

    def _time(self, block: int, n: int, n_linked: int, here: Callable[[Tensor], object]) -> float:
        """Seconds of n experts for one token, of which the card reads some after its own."""
        bank = self._banks[block]
        n_experts, width = bank.down.shape[:2]
        x, weights = np.ones((1, width), np.float32), np.ones((1, n), np.float32)
        on_card, factors = to_device(x), to_device(weights)
        out, own = np.empty_like(x), np.full((1, n), -1, np.int32)
        program, flags = cpu.experts_program(x, bank, own, weights, out), Flags()
        seconds = []
        for i in range(_REPEATED):
            # Others each time: the last ones may still be in a cache.
            first = (i * MOST_LINKED + n_linked) * 32 + n * 8
            chosen = (np.arange(n, dtype=np.int32) + first) % n_experts
            linked = np.where(np.arange(n) < n - n_linked, -1, chosen)[None].astype(np.int32)
            own[:] = np.where(linked < 0, chosen, -1)
            there = to_device(linked)
            flags.reset()
            flags.wait(1)  # both begin at once: to launch takes longer than the work
            here(on_card)
            self.weighted_sum(block, on_card, there, factors)
            began = time.perf_counter()
            flags.reply[0] = 1
            program.run(cpu.pool())
            synchronise()
            seconds.append(time.perf_counter() - began)
        return min(seconds)
