"""Speed of a whole model on the graphics card: `python benchmarks/gpu_model.py FILE`.

Runs the engine's own steps (one recorded step a token) without requests and sampling around them,
so it needs neither tokenizer nor command line. `--check` compares logits with the CPU back end;
`--profile` says which kernels a decoded token spends its time in. One JSON line a result.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from octavo import models
from octavo.engine.steps import Piece, Steps
from octavo.gguf.reader import GGUFFile, open_gguf
from octavo.kv.cache import Cache, Timeline, pages_of
from octavo.models import Model, Output


class Run:
    """A model on a back end with room for one sequence of `context` tokens."""

    def __init__(self, file: GGUFFile, backend: ModuleType, context: int, format: str) -> None:
        began = time.perf_counter()
        weights = models.FileWeights(file, backend)
        self.model: Model = models.build(file.metadata, weights)
        backend.place(weights.made, lambda done, total: None)
        self.load_seconds = time.perf_counter() - began
        self.cache = Cache(
            self.model.state(),
            n_pages=pages_of(context),
            n_slots=1,
            format=format,
            backend=backend,
            context=context,
        )
        self.steps = Steps(self.model, self.cache)

    def at(self, depth: int) -> Timeline:
        """A timeline of `depth` tokens that nobody computed: what they hold takes no less time."""
        timeline = self.cache.open()
        timeline.reserve(depth)
        timeline.advance([0] * depth)
        return timeline

    def step(self, timeline: Timeline, ids: list[int], record: bool) -> Output:
        timeline.reserve(len(ids))
        piece = Piece(timeline, timeline.n_tokens, ids, 1)
        output = self.steps.run([piece], record=record, every_hidden=record)
        timeline.advance(ids)
        return output

    def prefill(self, n_tokens: int, depth: int, piece_tokens: int) -> float:
        """Tokens a second of a prompt, read in pieces."""
        ids = np.random.default_rng(n_tokens).integers(0, self.model.config.n_vocab, n_tokens)
        timeline = self.at(depth)
        began = time.perf_counter()
        for start in range(0, n_tokens, piece_tokens):
            self.step(timeline, ids[start : start + piece_tokens].tolist(), record=False)
        seconds = time.perf_counter() - began
        timeline.close()
        return n_tokens / seconds

    def decode(self, n_tokens: int, depth: int) -> float:
        """Tokens a second, one after another, each the likeliest."""
        timeline = self.at(depth)
        best = 0
        for _ in range(2):  # the first step is recorded
            best = int(self.step(timeline, [best], record=True).logits[0].argmax())
        began = time.perf_counter()
        for _ in range(n_tokens):
            best = int(self.step(timeline, [best], record=True).logits[0].argmax())
        seconds = time.perf_counter() - began
        timeline.close()
        return n_tokens / seconds


def check(file: GGUFFile, run: Run, n_tokens: int) -> dict[str, Any]:
    """Logits of a short prompt, in one piece and token by token, against the CPU's."""
    ids = np.random.default_rng(1).integers(0, run.model.config.n_vocab, n_tokens).tolist()
    cpu = Run(file, importlib.import_module("octavo.ops.cpu"), 512, "f16")
    expected = cpu.step(cpu.at(0), ids, record=False).logits[0].copy()
    timeline = run.at(0)
    whole = run.step(timeline, ids, record=False).logits[0].copy()
    timeline.close()
    timeline = run.at(0)
    for id in ids:
        single = run.step(timeline, [id], record=True).logits[0].copy()
    timeline.close()
    return {
        "test": f"check {n_tokens}",
        "kl_whole": divergence(expected, whole),
        "kl_single": divergence(expected, single),
        "best": [int(row.argmax()) for row in (expected, whole, single)],
    }


def divergence(expected: np.ndarray, found: np.ndarray) -> float:
    """KL divergence of two rows of logits, nats."""
    p, q = (
        row.astype(np.float64) - np.logaddexp.reduce(row.astype(np.float64))
        for row in (expected, found)
    )
    return float(np.sum(np.exp(p) * (p - q)))


def profile(run: Run, depth: int, n_steps: int) -> Iterator[str]:
    """Kernels of decode steps: microseconds a step, launches a step, name."""
    from octavo.ops.gpu import profiled

    timeline = run.at(depth)
    for _ in range(2):
        run.step(timeline, [0], record=True)
    with profiled() as kernels:
        for _ in range(n_steps):
            run.step(timeline, [0], record=True)
    timeline.close()
    total_us = 1e6 * sum(kernel.seconds for kernel in kernels) / n_steps
    n_launches = sum(kernel.n_launches for kernel in kernels) / n_steps
    yield f"busy {total_us:.1f} us a token, {n_launches:.1f} launches"
    for name, n, seconds in kernels[:40]:
        yield f"{1e6 * seconds / n_steps:9.1f} us {n / n_steps:6.1f} x  {name[:90]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--backend", default="gpu")
    parser.add_argument("--prefill", default="512,4096", help="tokens of prompts")
    parser.add_argument("--decode", type=int, default=64, help="tokens")
    parser.add_argument("--depth", default="0", help="tokens before")
    parser.add_argument("--batch", type=int, default=4096, help="most tokens of a step")
    parser.add_argument("--cache-format", default="f16")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--check", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    depths = [int(d) for d in args.depth.split(",")]
    prompts = [int(n) for n in args.prefill.split(",") if int(n)]
    context = max(depths) + max([*prompts, args.decode + 16, args.check]) + 64
    with open_gguf(args.file) as file:
        backend = importlib.import_module(f"octavo.ops.{args.backend}")
        run = Run(file, backend, context, args.cache_format)
        show({"test": "load", "seconds": round(run.load_seconds, 2), "bytes": file.n_bytes})
        if args.check:
            show(check(file, run, args.check))
        for depth in depths:
            for n in prompts:
                run.prefill(n, depth, args.batch)  # compiles
                rates = [run.prefill(n, depth, args.batch) for _ in range(args.repetitions)]
                show(result(f"pp{n}@{depth}", rates))
            if args.decode:
                rates = [run.decode(args.decode, depth) for _ in range(args.repetitions)]
                show(result(f"tg{args.decode}@{depth}", rates))
            if args.profile:
                print("\n".join(profile(run, depth, 20)), flush=True)


def result(test: str, rates: list[float]) -> dict[str, Any]:
    return {
        "test": test,
        "tokens_per_second": round(statistics.median(rates), 2),
        "runs": [round(rate, 2) for rate in rates],
    }


def show(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
