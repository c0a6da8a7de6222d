"""Speed of the GPU's products with weights, and their results against float32 products.

    python benchmarks/gpu_kernels.py            # shapes of Qwen3.6-35B-A3B
    python benchmarks/gpu_kernels.py --formats  # every block format
    python benchmarks/gpu_kernels.py --sweep    # tiles of the kernels for few tokens
    ... -k WORD                                 # rows whose title holds the word

A row: microseconds a call, as one of many in a CUDA graph that goes round enough copies of the
weights to leave none in the cache; GB/s of weights or TFLOP/s and the share of what a copy and a
half-precision product reach on this device; normalised mean squared error.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from octavo import quants
from octavo.ops import gpu
from octavo.ops.gpu import quants as gpu_quants
from octavo.ops.gpu.rows import FewTile
from octavo.ops.weight import ExpertBank, Weight

CACHE_BYTES = 200 << 20  # more than the second-level cache of any card
TOKENS = (1, 2, 4, 8, 512, 4096)
D, HIDDEN, N_EXPERTS, N_USED, VOCABULARY = 2048, 512, 256, 8, 248320
NMSE_LIMIT = 1e-5
Run = Callable[[torch.Tensor], Any]
rng = np.random.default_rng(3)


def make_weight(name: str, *shape: int) -> Weight:
    """A weight of random blocks on the device: some hundred thousand of them, repeated."""
    form = quants.get(name)
    n_blocks = int(np.prod(shape)) // form.block_elements
    some = min(n_blocks, max(1, (1 << 20) // form.block_bytes) | 1)
    data = quants.random_blocks(name, some, rng, shape[-1] ** -0.5).reshape(-1)
    given = torch.from_numpy(data).cuda().repeat(-(-n_blocks // some))
    memo = {"gpu": given[: n_blocks * form.block_bytes].clone()}
    return Weight(name, name, shape, data, gpu, None, memo)


def floats_of(w: Weight, first: int = 0, n_rows: int = 0) -> torch.Tensor:
    """Rows of a weight as float32."""
    flat = Weight(w.name, w.format, (-1, w.shape[-1]), w.data, gpu, None, w.memo)
    n_rows = n_rows or int(np.prod(w.shape[:-1]))
    ids = torch.arange(first, first + n_rows, dtype=torch.int32, device="cuda")
    return gpu.embed(flat, ids)


def check_rows(name: str) -> None:
    """The device's floats are those of the format, bit for bit."""
    w = make_weight(name, 64, 2048)
    data = w.memo["gpu"].cpu().numpy()
    expected = quants.unpack(name, data, w.shape)
    if not np.array_equal(floats_of(w).cpu().numpy(), expected):
        raise SystemExit(f"{name}: unpacked weights differ from their meaning")


def microseconds(runs: list[Callable[[], Any]]) -> float:
    """Of one run, in a graph of all of them."""
    for run in runs[:2]:
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    best = float("inf")
    for _ in range(4):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        best = min(best, first.elapsed_time(last) * 1000 / len(runs))
    return best


def limits() -> tuple[float, float]:
    """GB/s of a copy (read and written) and TFLOP/s of a half-precision product."""
    data = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    copy = torch.empty_like(data)
    square = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
    gb = 2 * data.numel() / microseconds([lambda: copy.copy_(data)]) / 1e3
    return gb, 2 * 8192**3 / microseconds([lambda: square @ square]) / 1e6


def nmse(found: torch.Tensor, expected: torch.Tensor) -> float:
    error = (found.double() - expected.double()).square().mean()
    return float(error / expected.double().square().mean())


class Table:
    """Prints rows; knows the limits."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.gb, self.tflop = limits()
        name = torch.cuda.get_device_name()
        print(f"{name}, torch {torch.__version__}: {self.gb:.0f} GB/s, {self.tflop:.0f} TFLOP/s")

    def wants(self, title: str) -> bool:
        return self.word in title

    def row(self, title: str, us: float, n_bytes: float, n_ops: float, error: float) -> None:
        gb, tflop = n_bytes / us / 1e3, n_ops / us / 1e6
        shares = gb / self.gb, tflop / self.tflop
        speed = f"{gb:8.0f} GB/s   {shares[0]:5.0%}" if shares[0] > shares[1] else (
            f"{tflop:8.1f} TFLOP/s{shares[1]:5.0%}"
        )  # fmt: skip
        mark = "" if error < NMSE_LIMIT else "   WRONG"
        print(f"{title:44s}{us:10.1f} us {speed}  nmse {error:.0e}{mark}", flush=True)


def n_bytes_of(*weights: Weight) -> int:
    return sum(w.memo["gpu"].numel() for w in weights)


def copies(make: Callable[[], Any], n_bytes: int, n_tokens: int) -> list[Any]:
    """So many that they do not fit into the cache; long runs need no more than one."""
    n = 1 if n_tokens > 64 else max(1, min(64, CACHE_BYTES // n_bytes))
    return [make() for _ in range(n)]


def linear_rows(table: Table, title: str, shapes: list[tuple[str, int]], columns: int,
                tokens: tuple[int, ...] = TOKENS) -> None:  # fmt: skip
    """Weights (format, rows) that share x."""
    for n_tokens in tokens:
        name = f"linear {title} T={n_tokens}"
        if table.wants(name):
            linear_row(table, name, shapes, columns, n_tokens)


def linear_row(
    table: Table, name: str, shapes: list[tuple[str, int]], columns: int, n_tokens: int
) -> None:
    first = tuple(make_weight(f, rows, columns) for f, rows in shapes)

    def copy() -> tuple[Weight, ...]:
        memos = [{"gpu": w.memo["gpu"].clone()} for w in first]
        return tuple(
            Weight(w.name, w.format, w.shape, w.data, gpu, None, memo)
            for w, memo in zip(first, memos, strict=True)
        )

    n_bytes = n_bytes_of(*first)
    sets = [first, *copies(copy, n_bytes, n_tokens)[1:]]
    x = torch.randn(n_tokens, columns, device="cuda")
    error = 0.0
    for y, w in zip(gpu.linear(x, first), first, strict=True):
        n = min(8192, w.shape[0])
        error = max(error, nmse(y[:, -n:], x @ floats_of(w, w.shape[0] - n, n).T))
    us = microseconds([lambda s=s: gpu.linear(x, s) for s in sets])
    n_ops = 2.0 * n_tokens * columns * sum(rows for _, rows in shapes)
    table.row(name, us, n_bytes, n_ops, error)


def expert_rows(table: Table, gate: str, down: str) -> None:
    bank = ExpertBank(
        make_weight(gate, N_EXPERTS, HIDDEN, D), make_weight(gate, N_EXPERTS, HIDDEN, D),
        make_weight(down, N_EXPERTS, D, HIDDEN), "silu", gpu,
    )  # fmt: skip
    for n_tokens in TOKENS:
        name = f"experts {gate} {down} T={n_tokens}"
        if table.wants(name):
            expert_row(table, name, bank, n_tokens)


def expert_row(table: Table, name: str, bank: ExpertBank, n_tokens: int) -> None:
    x = torch.randn(n_tokens, D, device="cuda")

    def choose() -> torch.Tensor:
        score = torch.rand(n_tokens, N_EXPERTS, device="cuda")
        return score.topk(N_USED, 1).indices.to(torch.int32)

    weights = torch.rand(n_tokens, N_USED, device="cuda")
    ids = choose()
    found = gpu.experts(x, bank, ids, weights)
    error = nmse(found[:64], expected_experts(x[:64], bank, ids[:64], weights[:64]))
    # Each run chooses others: together they touch more than the cache holds.
    chosen = [choose() for _ in range(1 if n_tokens > 64 else 24)]
    us = microseconds([lambda i=i: gpu.experts(x, bank, i, weights) for i in chosen])
    n_bytes = n_bytes_of(bank.gate, bank.up, bank.down) / N_EXPERTS * len(ids.unique())
    table.row(name, us, n_bytes, 6.0 * n_tokens * N_USED * D * HIDDEN, error)


def expected_experts(
    x: torch.Tensor, bank: ExpertBank, ids: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    assert bank.up is not None
    for expert in ids.unique().tolist():
        token, choice = (ids == expert).nonzero(as_tuple=True)
        gate, up = (floats_of(w, expert * HIDDEN, HIDDEN) for w in (bank.gate, bank.up))
        hidden = torch.nn.functional.silu(x[token] @ gate.T) * (x[token] @ up.T)
        y = hidden @ floats_of(bank.down, expert * D, D).T
        out.index_add_(0, token, y * weights[token, choice, None])
    return out


def glu_rows(table: Table, name: str, hidden: int) -> None:
    for n_tokens in TOKENS:
        title = f"glu {name} {hidden} T={n_tokens}"
        if table.wants(title):
            glu_row(table, title, name, hidden, n_tokens)


def glu_row(table: Table, title: str, name: str, hidden: int, n_tokens: int) -> None:
    def make() -> list[Weight]:
        return [make_weight(name, hidden, D), make_weight(name, hidden, D),
                make_weight(name, D, hidden), make_weight("f32", D)]  # fmt: skip

    first = make()
    sets = [first, *copies(make, n_bytes_of(*first), n_tokens)[1:]]
    x = torch.randn(n_tokens, D, device="cuda")
    gate, up, down = (floats_of(w) for w in first[:3])
    scale = floats_of(first[3])[0]
    expected = (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    expected *= torch.sigmoid(x @ scale)[:, None]
    error = nmse(gpu.glu(x, *first[:3], "silu", first[3]), expected)
    us = microseconds([lambda s=s: gpu.glu(x, *s[:3], "silu", s[3]) for s in sets])
    table.row(title, us, n_bytes_of(*first), 6.0 * n_tokens * D * hidden, error)


def model_rows(table: Table) -> None:
    for name in ("q4_k", "q6_k", "q8_0", "f32", "q5_k"):
        check_rows(name)
    delta = [("q8_0", 8192), ("q8_0", 4096), ("f32", 32), ("f32", 32)]
    linear_rows(table, "delta in q8_0+f32", delta, D)
    linear_rows(table, "attention in q8_0", [("q8_0", 8192), ("q8_0", 512), ("q8_0", 512)], D)
    linear_rows(table, "out q8_0", [("q8_0", D)], 4096)
    linear_rows(table, "router f32", [("f32", N_EXPERTS)], D)
    linear_rows(table, "head q6_k", [("q6_k", VOCABULARY)], D, (1, 2, 4, 8))
    linear_rows(table, "head q8_0", [("q8_0", VOCABULARY)], D, (1, 4))
    glu_rows(table, "q8_0", HIDDEN)
    expert_rows(table, "q4_k", "q4_k")
    expert_rows(table, "q4_k", "q5_k")


def format_rows(table: Table) -> None:
    for name in gpu_quants.names():
        if table.wants(name):
            check_rows(name)
        linear_rows(table, name, [(name, 8192)], D, (1, 512))


# Rows, spans and warps of a program.
SHORT_SWEEP = [(1, 4, 1), (1, 8, 1), (2, 4, 1), (2, 8, 1), (4, 2, 1), (4, 4, 1), (4, 8, 2)]


def sweep(table: Table, tiles: list[tuple[int, int, int]]) -> None:
    """One token with these tiles: which is best for which shape."""
    # The package has the operations under the names of their modules.
    modules = [importlib.import_module(f"octavo.ops.gpu.{n}") for n in ("linear", "glu", "experts")]
    plan = modules[0].few_tile
    shapes: list[tuple[str, Callable[[Table], None]]] = [
        ("q8_0 12288 x 2048", lambda t: linear_rows(t, "q8_0", [("q8_0", 12288)], D, (1,))),
        ("q8_0 2048 x 4096", lambda t: linear_rows(t, "q8_0", [("q8_0", 2048)], 4096, (1,))),
        ("q6_k head", lambda t: linear_rows(t, "q6_k", [("q6_k", VOCABULARY)], D, (1,))),
        ("q4_k 8192 x 2048", lambda t: linear_rows(t, "q4_k", [("q4_k", 8192)], D, (1,))),
        ("experts", lambda t: expert_rows_once(t, "q4_k", "q5_k")),
        ("glu", lambda t: glu_rows_once(t, "q8_0", HIDDEN)),
    ]
    try:
        for title, show in shapes:
            if not table.wants(title):
                continue
            print(title)
            for rows, spans, warps in tiles:
                for module in modules:
                    module.few_tile = lambda *_, r=rows, s=spans, w=warps: FewTile(r, s, w)
                print(f"  {rows} rows {spans:2d} spans {warps} warps  ", end="")
                show(table)
    finally:
        for module in modules:
            module.few_tile = plan


class First(Table):
    """A table that shows one token only."""

    def __init__(self, table: Table) -> None:
        self.word, self.gb, self.tflop = "", table.gb, table.tflop

    def wants(self, title: str) -> bool:
        return title.endswith("T=1")


def expert_rows_once(table: Table, gate: str, down: str) -> None:
    expert_rows(First(table), gate, down)


def glu_rows_once(table: Table, name: str, hidden: int) -> None:
    glu_rows(First(table), name, hidden)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", "--only", default="", help="rows whose title holds this")
    parser.add_argument("--formats", action="store_true", help="every block format")
    parser.add_argument("--sweep", action="store_true", help="tiles of few tokens")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    start = time.perf_counter()
    table = Table(args.only)
    if args.sweep:
        every = itertools.product((1, 2, 4, 8), (2, 4, 8, 16), (1, 2, 4))
        sweep(table, [(r, s, w) for r, s, w in every if 2 <= r * s // w <= 16])
    elif args.formats:
        format_rows(table)
    else:
        model_rows(table)
        sweep(table, SHORT_SWEEP)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
