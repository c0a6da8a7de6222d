"""Speed of weights times activations, format by format, against the limits of the processor.

    python benchmarks/products.py -t 1 --formats q4_k,q8_0 --tokens 1,2,8,512

Few tokens are given in GB/s of weights and as a share of the speed of memory, many in billions
of multiplications and additions a second and as a share of the int8 peak. With `--cached` the
weights stay in the processor's caches: what the kernels alone can do.
"""

from __future__ import annotations

import argparse

import numpy as np

from limits import best_seconds, int8_gop_s, memory_gb_s
from octavo import quants
from octavo.ops import cpu
from octavo.ops.weight import Weight

ROWS, COLUMNS = 2048, 2048
CACHED_ROWS = 256
MEMORY_BYTES = 512 << 20
MANY_TOKENS = 32


def matrices(name: str, cached: bool) -> list[Weight]:
    """Random matrices of a format: one, or as many as no cache holds."""
    rows = CACHED_ROWS if cached else ROWS
    n_blocks = rows * COLUMNS // quants.get(name).block_elements
    data = quants.random_blocks(name, n_blocks, np.random.default_rng(0), 0.02).reshape(-1)
    n = 1 if cached else MEMORY_BYTES // len(data)
    return [Weight(f"w{i}", name, (rows, COLUMNS), data.copy(), cpu) for i in range(n)]


def seconds_of(weights: list[Weight], n_tokens: int) -> float:
    """Seconds of one product with each of the matrices."""
    x = np.random.default_rng(1).standard_normal((n_tokens, COLUMNS)).astype(np.float32)
    run = cpu.capture(lambda: [cpu.linear(x, (w,)) for w in weights])
    return best_seconds(run.replay)


def main() -> None:
    """Print a line a format."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--formats", default="q8_0,q4_k,q5_k,q6_k,q3_k,iq4_xs,iq3_s,iq3_xxs,mxfp4")
    parser.add_argument("--tokens", default="1,2,8,512")
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--level", help="instruction set, as OCTAVO_ISA names it")
    args = parser.parse_args()
    if args.level:
        cpu.set_level(args.level)
    cpu.set_threads(args.threads)
    memory, peak = memory_gb_s(), int8_gop_s()
    print(f"{cpu.level()}, {args.threads} threads: memory {memory:.1f} GB/s, int8 {peak:.0f} GOP/s")
    for name in args.formats.split(","):
        weights = matrices(name, args.cached)
        cells = []
        for n in map(int, args.tokens.split(",")):
            some = weights if n < MANY_TOKENS else weights[:2]
            seconds = seconds_of(some, n)
            if n < MANY_TOKENS:
                speed = sum(len(w.data) for w in some) / seconds / 1e9
                cells.append(f"T={n}: {speed:6.1f} GB/s {speed / memory:5.2f}")
            else:
                speed = 2 * n * sum(w.shape[0] * COLUMNS for w in some) / seconds / 1e9
                cells.append(f"T={n}: {speed:6.0f} GOP/s {speed / peak:5.2f}")
        print(f"{name:8}", "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
