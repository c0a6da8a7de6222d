"""What handing tokens to the processor costs a layer: `python benchmarks/gpu_handoff.py`.

Layers of small experts that are all on the card, so that the processor answers at once, in one
recorded step: without a hand-over, with the captured one (bell and reply in the graph), and with
the plain one (a wait for the stream in every layer). One JSON line each, microseconds a layer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from octavo import quants
from octavo.ops import gpu
from octavo.ops.gpu import flags
from octavo.ops.gpu.device import find, to_device
from octavo.ops.gpu.experts import SPLIT
from octavo.ops.gpu.split import Split
from octavo.ops.weight import ExpertBank, Weight

N_EXPERTS, N_USED, HIDDEN, WIDTH = 16, 8, 64, 2048


def make_bank(rng: np.random.Generator) -> ExpertBank:
    def weight(rows: int, columns: int) -> Weight:
        shape = N_EXPERTS, rows, columns
        data = quants.random_blocks("q8_0", np.prod(shape) // 32, rng, columns**-0.5)
        return Weight("w", "q8_0", shape, data.reshape(-1), gpu)

    gate, up, down = weight(HIDDEN, WIDTH), weight(HIDDEN, WIDTH), weight(WIDTH, HIDDEN)
    return ExpertBank(gate, up, down, "silu", gpu)


def microseconds(run: Callable[[], Any], n_layers: int, repetitions: int) -> float:
    """Median of one layer."""
    run()
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds) / n_layers * 1e6, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--tokens", default="1,2,3")
    parser.add_argument("--repetitions", type=int, default=200)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    banks = [make_bank(rng) for _ in range(args.layers)]
    for n in [int(word) for word in args.tokens.split(",")]:
        x = to_device(rng.standard_normal((n, WIDTH), np.float32))
        ids = np.stack([rng.permutation(N_EXPERTS)[:N_USED] for _ in range(n)]).astype(np.int32)
        chosen, weights = to_device(ids), to_device(rng.random((n, N_USED), np.float32))

        def step(x: Any = x, chosen: Any = chosen, weights: Any = weights) -> Any:
            y = x
            for bank in banks:
                y = gpu.experts(y, bank, chosen, weights, lambda: x)
            return gpu.fetch(y)

        def show(name: str, run: Callable[[], Any], n: int = n) -> None:
            us = microseconds(run, args.layers, args.repetitions)
            print(json.dumps({"test": name, "tokens": n, "us_a_layer": us}), flush=True)

        show("no hand-over, recorded", gpu.capture(step).replay)
        slot_bytes = Split(banks, 0).slot_bytes
        made = Split(banks, 2 * slot_bytes)
        made.make_pool(len(banks) * N_EXPERTS * slot_bytes)
        slots = np.arange(len(banks) * N_EXPERTS, dtype=np.int32).reshape(len(banks), N_EXPERTS)
        for block, expert in np.ndindex(*slots.shape):
            made.bring(block, expert, int(slots[block, expert])).wait()
        made.publish(slots)
        if flags.are_captured():
            show("captured hand-over, recorded", gpu.capture(step).replay)
        else:
            print(json.dumps({"test": "captured hand-over", "tokens": n, "us_a_layer": None}))
        show("plain hand-over, not recorded", step)
        for bank in banks:
            del bank.memo[SPLIT]
    print(json.dumps({"device": find().name, "layers": args.layers}))


if __name__ == "__main__":
    main()
