"""Experts that the card reads over the link, in main memory, while the processor computes others.

In a step of few tokens the processor alone would leave the link idle. So of the experts that are
not on the card, the last ones of a token's choice are the card's, as many as pay: that is measured
with both at work, since they share the memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from octavo.ops import cpu
from octavo.ops.gpu.device import Tensor, empty, pinned, synchronise, to_device
from octavo.ops.gpu.experts import bank_of, expert_bytes, weighted_sum
from octavo.ops.gpu.flags import Flags
from octavo.ops.weight import ExpertBank

MOST_LINKED = 4  # of a token: no link is as fast as half of the memory
_REPEATED = 5
_LEAST_GAIN = 0.03  # of the time: less is noise


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

    def measure(self, n_used: int, here: Callable[[Tensor, int], object]) -> list[int]:
        """What `share` should be given where a token has `n_used` experts; some 0.1 s.

        `here(x, n)` lets the card compute n experts that it holds.
        """
        shares = [0, 0]  # one alone is sooner done by the processor
        for n in range(2, n_used + 1):
            most = min(n, MOST_LINKED + 1)
            seconds = [self._time(n_used, n, k, here) for k in range(most)]
            best = int(np.argmin(seconds))
            shares.append(best if seconds[best] < (1 - _LEAST_GAIN) * seconds[0] else 0)
        return shares

    def _time(
        self, n_used: int, n: int, n_linked: int, here: Callable[[Tensor, int], object]
    ) -> float:
        """Seconds of a token with n experts that are not on the card, which reads some of them."""
        # Each expert is read once, in all: the last ones may still be in a cache.
        block = (n * (MOST_LINKED + 1) + n_linked) % len(self._banks)
        bank = self._banks[block]
        n_experts, width = bank.down.shape[:2]
        x, weights = np.ones((1, width), np.float32), np.ones((1, n_used), np.float32)
        on_card, factors = to_device(x), to_device(weights)
        out, own = np.empty_like(x), np.full((1, n_used), -1, np.int32)
        program, flags = cpu.experts_program(x, bank, own, weights, out), Flags()
        seconds = []
        for i in range(1 + _REPEATED):
            chosen = np.arange(i * n, (i + 1) * n, dtype=np.int32) % n_experts
            linked = np.full_like(own, -1)
            linked[0, :n_linked] = chosen[:n_linked]
            own[0, : n - n_linked] = chosen[n_linked:]
            there = to_device(linked)
            flags.reset()
            if i:  # the first time kernels are loaded, which waits for the card
                flags.wait(1)  # both begin at once: to launch takes longer than the work
            here(on_card, n_used - n)
            self.weighted_sum(block, on_card, there, factors)
            began = time.perf_counter()
            flags.reply[0] = 1
            program.run(cpu.pool())
            synchronise()
            seconds.append(time.perf_counter() - began)
        return min(seconds[1:])
