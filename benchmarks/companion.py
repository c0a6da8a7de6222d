"""The processor's half of a step with experts in two places, without a card.

    python benchmarks/companion.py FILE -t 16

A thread plays the card: after `--gap` microseconds it rings the next layer's bell, and waits for
the answer. For each number of experts that the card lacks: microseconds a layer from the bell to
the answer, GB/s, the share of the floor (their bytes at the speed of memory), and a line through
all of them: what a layer takes whatever it computes, and what an expert adds.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import numpy as np

import octavo
from limits import memory_gb_s
from octavo import _native
from octavo.ops import cpu
from octavo.ops.weight import ExpertBank

PATIENCE_SECONDS = 10.0


class Card:
    """What rings the bells of `n_layers` layers, `gap` seconds after each answer."""

    def __init__(self, n_layers: int, gap: float) -> None:
        self.bell, self.reply = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        self._n_layers, self._gap = n_layers, gap

    def start(self) -> threading.Thread:
        self.bell[0] = self.reply[0] = 0
        thread = threading.Thread(target=self._step)
        thread.start()
        return thread

    def _step(self) -> None:
        for i in range(self._n_layers):
            while self.reply[0] < i:
                pass
            rings = time.perf_counter() + self._gap
            while time.perf_counter() < rings:
                pass
            self.bell[0] = i + 1


class Steps:
    """One token through the experts of all banks; which are missed is drawn anew each time."""

    def __init__(self, banks: list[ExpertBank], n_used: int, gap: float) -> None:
        self._card, self._banks = Card(len(banks), gap), banks
        self._native = _native.Companion(self._card.bell, self._card.reply)
        width = banks[0].down.shape[1]
        self._x = np.random.default_rng(0).standard_normal((1, width)).astype(np.float32)
        self._weights = np.full((1, n_used), 0.1, np.float32)
        self._missed = [np.full((1, n_used), -1, np.int32) for _ in banks]
        self._out = [np.empty_like(self._x) for _ in banks]
        self._programs = [
            cpu.experts_program(self._x, bank, missed, self._weights, out)
            for bank, missed, out in zip(banks, self._missed, self._out, strict=True)
        ]
        for i, program in enumerate(self._programs):
            self._native.add(program, self._missed[i], banks[i].down.shape[0], self._out[i])

    def microseconds(self, n_missed: int, n_steps: int) -> float:
        """A layer's, from bell to answer; the median step's."""
        rng, found = np.random.default_rng(n_missed), []
        for _ in range(n_steps):
            for bank, missed in zip(self._banks, self._missed, strict=True):
                missed[0, :n_missed] = rng.choice(bank.down.shape[0], n_missed, replace=False)
                missed[0, n_missed:] = -1
            before, card = self._native.computed, self._card.start()
            self._native.run(cpu.pool(), 0, PATIENCE_SECONDS)
            card.join()
            found.append((self._native.computed - before) / len(self._banks))
        return 1e6 * float(np.median(found))


def main() -> None:
    """Print a line for each number of experts, and the line through them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--missed", default="1,2,3,4,5,6,8")
    parser.add_argument("--gap", type=float, default=60, help="microseconds")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    wishes = {"threads": args.threads} if args.threads else {}
    with octavo.load(args.file, speculate="off", context=64, sequences=1, **wishes) as session:
        banks = list(session._model.banks())
        expert_bytes = sum(w.data.size for w in (banks[0].gate, banks[0].up, banks[0].down) if w)
        expert_bytes //= banks[0].down.shape[0]
        gb_s, numbers = memory_gb_s(), [int(n) for n in args.missed.split(",")]
        steps = Steps(banks, max(numbers), 1e-6 * args.gap)
        print(f"{cpu.pool().n_threads} threads, {len(banks)} layers, memory {gb_s:.1f} GB/s")
        found = [steps.microseconds(n, args.steps) for n in numbers]
        for n, us in zip(numbers, found, strict=True):
            floor = n * expert_bytes / gb_s / 1e3
            print(
                f"{n} experts: {us:7.1f} us, {n * expert_bytes / us / 1e3:6.1f} GB/s, "
                f"{floor / us:.2f} of the floor"
            )
        each, whole = np.polyfit(numbers, found, 1)
        print(f"{whole:.1f} us a layer and {each:.1f} us an expert")


if __name__ == "__main__":
    main()
