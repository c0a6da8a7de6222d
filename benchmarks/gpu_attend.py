"""Attention and the delta rule on a GPU: right against the reference, and how fast.

    python benchmarks/gpu_attend.py [--seconds 55] [-k text]

Shapes are those of Qwen3.6-35B-A3B. Decoding is given in GB/s of the cache that is read (delta
rule: of the state that is read and written) and as a share of the speed of a large read; prompts
in TFLOP/s and as a share of a large product in half precision. Times are those of one layer in a
recorded graph of several, whose memory is not in the device's caches. What is left of the seconds
goes into other cuts of the decoding kernel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec, RecurrentSpec
from octavo.ops import gpu, reference
from octavo.ops.gpu.attend import Launch, attend, plan, run
from octavo.ops.gpu.device import find, to_device, to_host
from octavo.ops.gpu.recur import by_chunks, by_tokens, recur
from octavo.ops.weight import RecurWeights, Weight

HEADS, ATTENTION = 16, AttentionSpec(2, 256, 256, 256**-0.5)
DELTA = RecurrentSpec(16, 32, 128, 128, 4, True)
CONTEXT = 131_072 + 4096  # of page tables, as a model that is served has them
COLD_BYTES = 200 << 20  # more than a device's caches hold


def seconds_of(step: Callable[[], object], n_layers: int) -> float:
    """The shortest of some replays of a recorded step, for one of its layers."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
        found = []
        for _ in range(8):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) / 1e3)
    return min(found) / n_layers


def limits() -> tuple[float, float]:
    """GB/s of reading a lot and TFLOP/s of a large product of halves."""
    x = torch.zeros(1 << 28, device="cuda")
    read = 4 * x.numel() / seconds_of(lambda: x.max(), 1) / 1e9
    a = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
    return read, 2 * 8192**3 / seconds_of(lambda: a @ a, 1) / 1e12


def one_sequence(n_past: int, n_new: int, context: int = CONTEXT) -> Batch:
    n_pages = -(-context // PAGE_TOKENS)
    batch = Batch.empty(n_new, 1, n_pages, 0)
    batch.pages[0] = np.random.default_rng(0).permutation(n_pages)
    batch.starts[1] = n_new
    batch.n_past[0] = n_past
    batch.state_slots[-1] = 0
    return batch


def uploaded(batch: Batch) -> Batch:
    return Batch(*(to_device(x) for x in vars(batch).values()))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def error(found: Any, expected: Any) -> float:
    a, b = (torch.as_tensor(x).double().cpu() for x in (found, expected))
    return float(((a - b) ** 2).mean() / (b**2).mean())


def attention_inputs(n_new: int) -> list[np.ndarray]:
    shapes = (HEADS, 256), (2, 256), (2, 256), (HEADS, 256)
    return [floats(n_new, *shape, seed=i) for i, shape in enumerate(shapes)]


def check_attention() -> Iterator[tuple[str, float]]:
    """(case, normalised error against the reference)."""
    for name in ("f16", "q8_0"):
        for n_past, n_new in ((0, 1), (1000, 1), (700, 8), (190, 100)):
            batch = one_sequence(n_past, n_new, n_past + n_new)
            data = np.full((batch.pages.size, formats.page_bytes(name, ATTENTION)), 0xFF, np.uint8)
            plain = AttentionLayer(ATTENTION, name, data, reference)
            k, v = floats(n_past, 2, 256, seed=5), floats(n_past, 2, 256, seed=6)
            for at in range(0, n_past, PAGE_TOKENS):
                own = slice(at, at + PAGE_TOKENS)
                page = int(batch.pages[0, at // PAGE_TOKENS])
                formats.find(name).write(plain, page, 0, k[own], v[own])
            fast = replace(plain, data=to_device(plain.data), backend=gpu)
            q, k, v, gate = attention_inputs(n_new)
            expected = reference.attend(q, k, v, plain, batch, gate)
            given = [to_device(x) for x in (q, k, v)]
            found = attend(*given, fast, uploaded(batch), to_device(gate))
            same = np.array_equal(to_host(fast.data), plain.data)
            yield f"attend {name} {n_past}+{n_new}, pages {same}", error(found, expected)


def delta_weights() -> RecurWeights:
    def weight(name: str, values: np.ndarray) -> Weight:
        values = np.ascontiguousarray(values, np.float32)
        return Weight(name, "f32", values.shape, values.reshape(-1).view(np.uint8), gpu)

    heads = DELTA.n_value_heads
    return RecurWeights(
        weight("conv", floats(DELTA.n_channels, 4) * 0.5),
        weight("a", -np.exp(floats(heads))),
        weight("dt", floats(heads)),
        weight("norm", 1 + 0.1 * floats(DELTA.value_dim)),
        1e-6,
    )


def delta_inputs(n_new: int) -> list[np.ndarray]:
    widths = DELTA.n_channels, DELTA.n_value_heads * DELTA.value_dim, 32, 32
    return [floats(n_new, width, seed=i) for i, width in enumerate(widths)]


def delta_layer() -> RecurrentLayer:
    state = 0.1 * floats(1, *DELTA.state_shape, seed=9)
    return RecurrentLayer(DELTA, floats(1, *DELTA.conv_shape, seed=8), state, reference)


def check_delta() -> Iterator[tuple[str, float]]:
    weights = delta_weights()
    for n_new, forms in ((1, ["tokens"]), (150, ["tokens", "chunks"])):
        inputs, batch = delta_inputs(n_new), one_sequence(5, n_new, 64)
        plain = delta_layer()
        before = plain.conv.copy(), plain.state.copy()
        expected = reference.recur(*inputs, weights, plain, batch)
        for form in forms:
            fast = RecurrentLayer(DELTA, to_device(before[0]), to_device(before[1]), gpu)
            found = to_device(np.full_like(expected, np.nan))
            call = by_tokens if form == "tokens" else by_chunks
            call(*map(to_device, inputs), weights, fast, uploaded(batch), found)
            title = f"recur {n_new} by {form}"
            yield title, error(found, expected)
            yield f"{title}, state", error(fast.state, plain.state)
            yield f"{title}, window", error(fast.conv, plain.conv)


class Attention:
    """Some layers of one format at one depth, and a step of so many tokens."""

    def __init__(self, name: str, n_past: int, n_new: int) -> None:
        self.batch = uploaded(one_sequence(n_past, n_new))
        page_bytes = formats.page_bytes(name, ATTENTION)
        n_pages = self.batch.pages.shape[1]
        read = page_bytes * -(-(n_past + n_new) // PAGE_TOKENS)
        self.bytes = read
        self.operations = 4.0 * HEADS * 256 * (n_new * n_past + n_new * (n_new + 1) / 2)
        n_layers = 1 if n_new > 64 else min(10, max(2, COLD_BYTES // read))
        self.layers = []
        for _ in range(n_layers):
            # 0x2C: a half of 0.06, an int8 of 44.
            data = torch.full((n_pages, page_bytes), 0x2C, dtype=torch.uint8, device="cuda")
            self.layers.append(AttentionLayer(ATTENTION, name, data, gpu))
        self.inputs = [to_device(x) for x in attention_inputs(n_new)]
        self.out = to_device(floats(n_new, HEADS * 256))

    def seconds(self, launch: Launch) -> float:
        q, k, v, gate = self.inputs

        def step() -> None:
            for layer in self.layers:
                run(q, k, v, layer, self.batch, gate, self.out, launch)

        return seconds_of(step, len(self.layers))

    def launch(self) -> Launch:
        n_tokens, n_pages = len(self.out), self.batch.pages.shape[1]
        return plan(find(), self.layers[0].format, ATTENTION, HEADS, n_tokens, 1, n_pages)


def delta_seconds(n_new: int) -> float:
    weights = delta_weights()
    n_layers = 30 if n_new <= 8 else 1
    plain = delta_layer()
    layers = [
        RecurrentLayer(DELTA, to_device(plain.conv), to_device(plain.state), gpu)
        for _ in range(n_layers)
    ]
    inputs = [to_device(x) for x in delta_inputs(n_new)]
    batch = uploaded(one_sequence(5, n_new, 64))

    def step() -> None:
        for layer in layers:
            recur(*inputs, weights, layer, batch)

    return seconds_of(step, n_layers)


def report(title: str, seconds: float, speed: float, unit: str, limit: float) -> None:
    print(
        f"{title:44s}{seconds * 1e6:10.1f} us{speed:9.1f} {unit:8s}{speed / limit:6.0%}", flush=True
    )


def table(only: str, read: float, product: float) -> None:
    for name in ("f16", "q8_0"):
        for depth in (0, 4096, 32_768, 131_072):
            title = f"attend {name} decode at {depth}"
            if only in title:
                case = Attention(name, depth, 1)
                seconds = case.seconds(case.launch())
                report(title, seconds, case.bytes / seconds / 1e9, "GB/s", read)
    for n_new in (1, 8, 512, 4096):
        title = f"recur {n_new}"
        if only in title:
            seconds = delta_seconds(n_new)
            moved = 2 * 4 * np.prod(DELTA.state_shape)
            if n_new <= 8:
                report(title, seconds, moved / seconds / 1e9, "GB/s", read)
            else:
                operations = n_new * 32 * (8.0 * 128 * 128 + 6.0 * 64 * 128)
                report(title, seconds, operations / seconds / 1e12, "TFLOP/s", product)
    for name in ("f16", "q8_0"):
        for n_new, depth in ((512, 0), (4096, 0), (512, 32_768), (4096, 32_768)):
            title = f"attend {name} prompt of {n_new} at {depth}"
            if only in title:
                case = Attention(name, depth, n_new)
                seconds = case.seconds(case.launch())
                report(title, seconds, case.operations / seconds / 1e12, "TFLOP/s", product)


def sweep(deadline: float, read: float) -> None:
    """Other cuts of the decoding kernel, while there is time."""
    for name in ("q8_0", "f16"):
        case = Attention(name, 131_072, 1)
        planned = case.launch()
        print(f"{name} is planned as {planned}")
        for warps, stages, positions, splits, registers in (
            (8, 2, 64, 132, 128),
            (8, 3, 64, 66, 0),
            (8, 2, 32, 132, 128),
            (8, 3, 64, 132, 128),
            (4, 2, 64, 132, 0),
            (4, 3, 32, 264, 128),
            (16, 3, 64, 66, 0),
        ):
            if time.monotonic() > deadline:
                return
            launch = Launch(16, positions, splits, warps, stages, registers)
            seconds = case.seconds(launch)
            title = (
                f"{name} warps {warps} stages {stages} N {positions} splits {splits} {registers}"
            )
            report(title, seconds, case.bytes / seconds / 1e9, "GB/s", read)


def main() -> None:
    """Check, then print the table, then try other cuts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", "--only", default="", help="rows whose title holds this")
    parser.add_argument("--seconds", type=float, default=55)
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds
    read, product = limits()
    print(f"{find().name}: {read:.0f} GB/s, {product:.0f} TFLOP/s")
    for title, wrong in [*check_attention(), *check_delta()]:
        print(f"{title:44s}{wrong:10.1e}  {'ok' if wrong < 1e-5 else 'WRONG'}", flush=True)
    table(args.only, read, product)
    sweep(deadline, read)


if __name__ == "__main__":
    main()
