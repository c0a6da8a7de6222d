"""Experts in two places within a bound of video memory: `python benchmarks/gpu_split.py FILE`.

Plans and loads as `octavo run --vram` does, then runs steps as the engine does, without requests
and sampling around them. `--trace TOKENS` makes experts be chosen as in models that were trained:
the router's choice is overwritten by a made-up one with the published locality (one more small copy
a layer). One JSON line a result; the last one compares the plan's video memory with what was taken.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pynvml as nvml
import torch

import octavo
from gpu_model import Run, profile, result, show
from octavo.engine.steps import Steps
from octavo.experts.trace import make_trace
from octavo.ops import gpu
from octavo.ops.gpu import flags
from octavo.ops.gpu.device import pinned
from octavo.session import Session


class SplitRun(Run):
    """The steps of a loaded model, whose engine has nothing to do meanwhile."""

    def __init__(self, session: Session) -> None:
        self.model, self.cache = session._model, session._cache
        self.residents = session.residents
        settle = None if self.residents is None else self.residents.settle
        self.steps = Steps(self.model, self.cache, settle)

    def spent(self) -> dict[str, float]:
        """Since the start, milliseconds: see `handoff.Spent`."""
        assert self.residents is not None, "the whole model is on the card"
        spent = self.residents.store.spent
        return {
            "waiting_ms": 1e3 * spent.waiting_seconds,
            "computing_ms": 1e3 * spent.computing_seconds,
            "experts": spent.n_experts,
        }

    def hits(self) -> tuple[int, int]:
        """Experts that were on the card, and all that were asked for, since the start."""
        assert self.residents is not None, "the whole model is on the card"
        self.residents.finish()
        return self.residents.n_found, self.residents.n_asked


class TracedRouting:
    """Stands for `gpu.route`: ids of a trace, the weights of the router's own choice."""

    def __init__(self, trace: np.ndarray) -> None:
        self.trace = trace
        n_blocks, n_used = trace.shape[1:]
        self._rows = pinned(n_blocks * n_used, torch.int32).view(n_blocks, n_used)
        self._route, self._n_calls = gpu.route, 0

    def __call__(self, x: Any, gate: Any, rule: Any) -> tuple[Any, Any]:
        ids, weights = self._route(x, gate, rule)
        ids.copy_(self._rows[self._n_calls % len(self._rows)][None], non_blocking=True)
        self._n_calls += 1
        return ids, weights

    def token(self, n: int) -> None:
        self._rows.numpy()[:] = self.trace[n % len(self.trace)]


def decode_traced(run: SplitRun, n_tokens: int, depth: int) -> dict[str, Any]:
    """Decoding with made-up routing; the second half counts."""
    config = run.model.config
    assert config.experts is not None
    shape = config.n_layers, config.experts.n_experts, config.experts.rule.n_used
    routing = TracedRouting(make_trace(n_tokens, *shape))
    gpu.route, own = routing, gpu.route  # type: ignore[assignment]
    try:
        run.steps = Steps(run.model, run.cache, run.residents and run.residents.settle)
        timeline, before, began = run.at(depth), (0, 0), 0.0
        for i in range(n_tokens):
            if i == n_tokens // 2:
                before, began = run.hits(), time.perf_counter()
            routing.token(i)
            run.step(timeline, [i % config.n_vocab], record=True)
        seconds = time.perf_counter() - began
        timeline.close()
    finally:
        gpu.route = own
    found, asked = (now - then for now, then in zip(run.hits(), before, strict=True))
    return {
        "test": f"trace{n_tokens}@{depth}",
        "tokens_per_second": round((n_tokens - n_tokens // 2) / seconds, 2),
        "hits": round(found / asked, 4),
    }


class Peak:
    """Video memory of the whole card as nvidia-smi tells it, watched by a thread."""

    def __init__(self) -> None:
        nvml.nvmlInit()
        self._card = nvml.nvmlDeviceGetHandleByIndex(0)
        self.idle_mib = self.mib = self._now()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.mib = max(self.mib, self._now())
            time.sleep(0.05)

    def _now(self) -> int:
        # Without what the driver keeps for itself, as nvidia-smi shows it.
        memory = nvml.nvmlDeviceGetMemoryInfo(self._card, version=nvml.nvmlMemory_v2)
        return int(memory.used) >> 20


def memory(session: Session, peak: Peak) -> dict[str, Any]:
    """The plan's bytes against torch's and the card's."""
    plan = session.plan
    assert plan.video is not None
    own = plan.video_total_bytes - plan.video.context_bytes - plan.video.slack_bytes
    reserved = torch.cuda.max_memory_reserved()
    return {
        "test": "memory",
        "placement": plan.placement,
        "slots": session.residents.store.n_slots if session.residents else 0,
        "slots_share": round(plan.video.pool_share, 4),
        "predicted_bytes": own,
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": reserved,
        "predicted_to_reserved": round(own / reserved, 4),
        "context_bytes": plan.video.total_bytes
        - plan.video.other_bytes
        - torch.cuda.mem_get_info()[0]
        - torch.cuda.memory_reserved(),
        "planned_context_bytes": plan.video.context_bytes,
        "planned_slots": plan.video.n_slots,
        "batch": plan.batch_tokens,
        "limit_bytes": plan.video.limit_bytes,
        "peak_mib": peak.mib - peak.idle_mib,
        "captured_hand_over": flags.are_captured(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--vram", type=float, default=8e9, help="bytes")
    parser.add_argument("--placement", help="split, gpu; by default what fits")
    parser.add_argument("--prefill", default="512,4096", help="tokens of prompts")
    parser.add_argument("--decode", type=int, default=128, help="tokens")
    parser.add_argument("--depth", type=int, default=0, help="tokens before")
    parser.add_argument("--trace", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--cache-format", default="f16")
    parser.add_argument("--batch", type=int, help="most tokens of a step")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of the processor")
    parser.add_argument("--profile", action="store_true", help="kernels of a generated token")
    args = parser.parse_args()
    prompts = [int(n) for n in args.prefill.split(",") if int(n)]
    context = args.depth + max([*prompts, args.decode, args.trace]) + 64
    wishes: dict[str, Any] = {"context": context, "sequences": 1, "cache_format": args.cache_format}
    wishes |= {"placement": args.placement} if args.placement else {}
    wishes |= {"batch": args.batch} if args.batch else {}
    wishes |= {"threads": args.threads} if args.threads else {}
    peak, began = Peak(), time.perf_counter()
    with octavo.load(
        args.file, backend="gpu", speculate="off", video_bytes=int(args.vram), **wishes
    ) as session:
        show({"test": "load", "seconds": round(time.perf_counter() - began, 2)})
        run = SplitRun(session)
        if run.residents is not None:
            run.residents.wait()
        for n in prompts:
            batch = session.plan.batch_tokens
            run.prefill(n, args.depth, batch)
            rates = [run.prefill(n, args.depth, batch) for _ in range(args.repetitions)]
            show(result(f"pp{n}@{args.depth}", rates))
        if args.decode:
            before = run.hits() if run.residents else (0, 0)
            spent = run.spent() if run.residents else {}
            rates = [run.decode(args.decode, args.depth) for _ in range(args.repetitions)]
            line = result(f"tg{args.decode}@{args.depth}", rates)
            if run.residents:
                found, asked = (a - b for a, b in zip(run.hits(), before, strict=True))
                line["hits"] = round(found / asked, 4)
                n_steps = args.repetitions * (args.decode + 2)
                line |= {k: round((n - spent[k]) / n_steps, 3) for k, n in run.spent().items()}
            show(line)
        if args.trace:
            show(decode_traced(run, args.trace, args.depth))
        show(memory(session, peak))
        if args.profile:
            print("\n".join(profile(run, args.depth, 20)), flush=True)


if __name__ == "__main__":
    main()
