"""Speed of attention and of the delta rule, against the measured limits of the processor.

    python benchmarks/attend.py -t 1,2

Decoding is given in GB/s of the cache that is read (attention) or read and written (delta rule),
prompts in GFLOP/s. The best of several samples counts, as other work can only slow one down.
"""

from __future__ import annotations

import argparse

import numpy as np

from limits import best_seconds, float_gop_s, memory_gb_s
from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec, RecurrentSpec
from octavo.ops import cpu
from octavo.ops.weight import RecurWeights, Weight

# query heads, key heads, head width
SHAPES = {
    "smollm2-135m": (9, 3, 64),
    "gemma3-270m": (4, 1, 256),
    "qwen3-0.6b": (16, 8, 128),
    "qwen3.6-35b": (16, 2, 256),
}
DELTA = RecurrentSpec(16, 32, 128, 128, 4, True)
CACHE_BYTES = 256 << 20  # so many layers that none is left in the processor's caches


def one_sequence(n_past: int, n_new: int) -> Batch:
    n_pages = -(-(n_past + n_new) // PAGE_TOKENS)
    batch = Batch.empty(n_new, 1, n_pages, 0)
    batch.pages[0] = np.random.default_rng(0).permutation(n_pages)
    batch.starts[1] = n_new
    batch.n_past[0] = n_past
    batch.state_slots[-1] = 0
    return batch


def attention(
    shape: tuple[int, int, int], name: str, n_past: int, n_new: int
) -> tuple[float, int, float]:
    """Seconds of one layer, bytes of cache it reads, floating-point operations."""
    heads, kv_heads, d = shape
    spec = AttentionSpec(kv_heads, d, d, d**-0.5)
    batch = one_sequence(n_past, n_new)
    page_bytes = formats.page_bytes(name, spec)
    n_layers = max(1, CACHE_BYTES // (page_bytes * batch.pages.size)) if n_past else 1
    rng = np.random.default_rng(1)
    # 0x2C: a half of 0.06, an int8 of 44.
    layers = [
        AttentionLayer(spec, name, np.full((batch.pages.size, page_bytes), 0x2C, np.uint8), cpu)
        for _ in range(n_layers)
    ]
    q, k, v = (rng.standard_normal((n_new, h, d), np.float32) for h in (heads, kv_heads, kv_heads))

    def step() -> None:
        for layer in layers:
            cpu.attend(q, k, v, layer, batch)

    recording = cpu.capture(step)
    seconds = best_seconds(recording.replay) / n_layers
    n_pairs = n_new * n_past + n_new * (n_new + 1) // 2
    return seconds, page_bytes * (n_past + n_new) // PAGE_TOKENS, 4.0 * n_pairs * heads * d


def delta_rule(n_past: int, n_new: int) -> tuple[float, int, float]:
    """Seconds of one layer, bytes of state it reads and writes, floating-point operations."""
    rng = np.random.default_rng(2)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    def weight(*shape: int) -> Weight:
        return Weight("", "f32", shape, floats(*shape).reshape(-1).view(np.uint8), cpu)

    state_bytes = 4 * int(np.prod(DELTA.state_shape))
    n_layers = max(1, CACHE_BYTES // state_bytes) if n_new == 1 else 1
    n_heads, d_k, d_v = DELTA.state_shape
    small = RecurWeights(
        weight(DELTA.n_channels, 4), weight(n_heads), weight(n_heads), weight(d_v), 1e-6
    )
    layers = [
        RecurrentLayer(DELTA, floats(1, *DELTA.conv_shape), floats(1, *DELTA.state_shape), cpu)
        for _ in range(n_layers)
    ]
    inputs = [floats(n_new, n) for n in (DELTA.n_channels, n_heads * d_v, n_heads, n_heads)]
    batch = one_sequence(n_past, n_new)

    def step() -> None:
        for layer in layers:
            cpu.recur(*inputs, small, layer, batch)

    recording = cpu.capture(step)
    seconds = best_seconds(recording.replay) / n_layers
    return seconds, 2 * state_bytes, 8.0 * n_new * n_heads * d_k * d_v


def report(title: str, seconds: float, speed: float, unit: str, limit: float) -> None:
    print(f"{title:44s}{seconds * 1e6:11.1f} us{speed:9.2f} {unit:8s}{speed / limit:6.0%}")


def main() -> None:
    """Print the table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-t", "--threads", default="1,2", help="numbers of threads")
    parser.add_argument("-k", "--only", default="", help="rows whose title holds this")
    parser.add_argument("--level", help="instruction-set level")
    args = parser.parse_args()
    if args.level:
        cpu.pool()
        cpu.set_level(args.level)
    for n_threads in (int(n) for n in args.threads.split(",")):
        cpu.set_threads(n_threads)
        gb_limit, gflop_limit = memory_gb_s(), float_gop_s()
        print(
            f"\n{n_threads} threads, {cpu.level()}: {gb_limit:.1f} GB/s, {gflop_limit:.0f} GFLOP/s"
        )
        for model, shape in SHAPES.items():
            for name in ("f16", "q8_0"):
                for depth in (4096, 16384):
                    title = f"{model} {name} decode at {depth}"
                    if args.only in title:
                        seconds, n_bytes, _ = attention(shape, name, depth - 1, 1)
                        report(title, seconds, n_bytes / seconds / 1e9, "GB/s", gb_limit)
                title = f"{model} {name} prompt of 2048"
                if args.only in title:
                    seconds, _, n_ops = attention(shape, name, 0, 2048)
                    report(title, seconds, n_ops / seconds / 1e9, "GFLOP/s", gflop_limit)
        if args.only in "delta rule decode":
            seconds, n_bytes, _ = delta_rule(1, 1)
            report("delta rule decode", seconds, n_bytes / seconds / 1e9, "GB/s", gb_limit)
        if args.only in "delta rule prompt of 512":
            seconds, _, n_ops = delta_rule(0, 512)
            report(
                "delta rule prompt of 512", seconds, n_ops / seconds / 1e9, "GFLOP/s", gflop_limit
            )


if __name__ == "__main__":
    main()
