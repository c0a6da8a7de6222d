"""How often a routed expert is found on the card: `python benchmarks/expert_hits.py`.

Plays made-up routing with the published locality (octavo.experts.trace) against the pool, and
against simpler ways to choose who sits there: LRU and LFU, which bring every expert that was
missed, and a static choice, the most used of the first half. Each share of experts is split evenly
among the blocks for those; the pool is one for all blocks. Counted is the second half of the trace.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict
from typing import Any

import numpy as np

from octavo.experts.pool import ExpertPool, Rules, run
from octavo.experts.trace import make_trace

EXPERT_BYTES = 1_769_472  # of Qwen3.6-35B-A3B in Q4_K
Result = tuple[float, float]  # share of picks found, MB brought a token


def lru(trace: Any, n_slots: int) -> Result:
    """Each block keeps those used last."""
    hits = brought = 0
    for block in range(trace.shape[1]):
        kept: OrderedDict[int, None] = OrderedDict()
        for t, used in enumerate(trace[:, block].tolist()):
            found = sum(expert in kept for expert in used)
            if 2 * t >= len(trace):
                hits, brought = hits + found, brought + len(used) - found
            for expert in used:
                kept[expert] = None
                kept.move_to_end(expert)
            while len(kept) > n_slots:
                kept.popitem(last=False)
    return result(trace, hits, brought)


def lfu(trace: Any, n_slots: int) -> Result:
    """Each block keeps those used most often; whoever was missed takes the place of the rarest."""
    hits = brought = 0
    for block in range(trace.shape[1]):
        kept: set[int] = set()
        counts = np.zeros(trace.max() + 1, np.int64)
        for t, used in enumerate(trace[:, block].tolist()):
            found = sum(expert in kept for expert in used)
            if 2 * t >= len(trace):
                hits, brought = hits + found, brought + len(used) - found
            counts[used] += 1
            kept.update(used)
            if len(kept) > n_slots:
                ranked = sorted(kept, key=lambda e: (e not in used, -counts[e]))
                kept = set(ranked[:n_slots])
    return result(trace, hits, brought)


def static(trace: Any, n_slots: int) -> Result:
    """The most used of the first half stay."""
    half, hits = len(trace) // 2, 0
    for block in range(trace.shape[1]):
        counts = np.bincount(trace[:half, block].ravel(), minlength=trace.max() + 1)
        kept = np.argsort(-counts, kind="stable")[:n_slots]
        hits += int(np.isin(trace[half:, block], kept).sum())
    return result(trace, hits, 0)


def pool(trace: Any, n_slots: int, rules: Rules) -> Result:
    """The pool, warm."""
    n_blocks, n_used = trace.shape[1:]
    floor = min(2 * n_used, n_slots)
    made = ExpertPool(n_blocks, 256, n_slots * n_blocks, EXPERT_BYTES, floor=floor, rules=rules)
    for admission in made.seed():
        made.arrived(admission)
    hits, brought = run(made, trace)
    half = len(trace) // 2
    return result(trace, int(hits[half:].sum()), int(brought[half:].sum()))


def result(trace: Any, hits: int, brought: int) -> Result:
    """Both numbers of a policy."""
    n_counted = len(trace) - len(trace) // 2
    picks = n_counted * trace.shape[1] * trace.shape[2]
    return hits / picks, brought * EXPERT_BYTES / n_counted / 1e6


def main() -> None:
    """Print a table: hits and MB brought a token."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--shares", default="6.6,10,15,20,25,30,33,35", help="per cent")
    parser.add_argument("--seed", type=int, default=0)
    defaults = Rules()
    parser.add_argument("--slow", type=float, default=defaults.slow_half_life)
    parser.add_argument("--fast", type=float, default=defaults.fast_half_life)
    parser.add_argument("--weight", type=float, default=defaults.fast_weight)
    parser.add_argument("--touch", type=int, default=defaults.touch_tokens)
    args = parser.parse_args()
    rules = Rules(
        slow_half_life=args.slow,
        fast_half_life=args.fast,
        fast_weight=args.weight,
        touch_tokens=args.touch,
    )
    trace = make_trace(args.tokens, args.blocks, seed=args.seed)
    print(f"{'share':>6} {'pool':>15} {'LRU':>15} {'LFU':>15} {'static':>8}")
    for share in [float(word) for word in args.shares.split(",")]:
        n_slots = round(share / 100 * 256)
        rows = pool(trace, n_slots, rules), lru(trace, n_slots), lfu(trace, n_slots)
        cells = " ".join(f"{hits:6.1%} {mb:5.0f} MB" for hits, mb in rows)
        print(f"{share:5.1f}% {cells} {static(trace, n_slots)[0]:8.1%}", flush=True)


if __name__ == "__main__":
    main()
