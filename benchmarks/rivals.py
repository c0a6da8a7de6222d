"""Octavo against llama-bench programs, alternating on the same file and threads.

    python benchmarks/rivals.py MODEL.gguf --rival llama=/path/llama-bench --rival ik=/path/... \
        -t 1,2 -p 512 -n 64 -d 0,4096

Each sample is a new process; before each, the machine must be idle, since engines with spinning
threads collapse beside another busy process. Printed are medians, the ratio to the best rival and
to the floor: bytes that a token reads over the measured speed of memory, or operations of the
matrices over the measured int8 peak. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from limits import int8_gop_s, memory_gb_s
from octavo.ops import cpu

IDLE_PERCENT = 12.0  # of all cores
WAIT_SECONDS = 120.0


def wait_until_idle() -> None:
    """Return when the processor has been idle for a second, or after two minutes."""
    end = time.monotonic() + WAIT_SECONDS
    while psutil.cpu_percent(1.0) > IDLE_PERCENT and time.monotonic() < end:
        pass


def limits(n_threads: int) -> dict[str, float]:
    """Measured limits with that many threads: memory GB/s, int8 Gop/s."""
    cpu.set_threads(n_threads)
    return {"GB/s": memory_gb_s(), "Gop/s": int8_gop_s()}


def run_octavo(model: Path, test: tuple[str, int, int], n_threads: int, cache: str) -> Any:
    """One sample of `octavo bench`: its result as a dictionary."""
    kind, n, depth = test
    command = [sys.executable, "-m", "octavo", "bench", str(model), "--json", "-r", "1"]
    command += ["-p", str(n if kind == "pp" else 0), "-n", str(n if kind == "tg" else 0)]
    command += ["-d", str(depth), "-t", str(n_threads), "--cache-format", cache]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])["results"][0]


def run_rival(
    program: str, model: Path, test: tuple[str, int, int], n_threads: int, cache: str
) -> float:
    """One sample of a llama-bench: tokens a second."""
    kind, n, depth = test
    command = [*program.split(), "-m", str(model), "-t", str(n_threads), "-r", "1", "-o", "json"]
    command += ["-ctk", cache, "-ctv", cache, "-fa", "1"]
    if "-gp" in subprocess.run([program.split()[0], "-h"], capture_output=True, text=True).stdout:
        # ik_llama.cpp: -gp measures generation behind a prompt
        tests = {"pp": ["-p", str(n), "-n", "0"], "tg": ["-p", "0", "-n", str(n)]}[kind]
        if depth:
            tests = ["-p", "0", "-n", "0", "-gp", f"{depth},{n}"]
    else:
        tests = ["-p", str(n if kind == "pp" else 0), "-n", str(n if kind == "tg" else 0)]
        tests += ["-d", str(depth)]
    out = subprocess.run([*command, *tests], check=True, capture_output=True, text=True).stdout
    rows = json.loads(out[out.index("[") :])
    return float(rows[-1]["avg_ts"])


def compare(args: argparse.Namespace, test: tuple[str, int, int], n_threads: int) -> Any:
    """All samples of one test."""
    samples: dict[str, list[float]] = defaultdict(list)
    ours: dict[str, Any] = {}
    for _ in range(args.rounds):
        wait_until_idle()
        ours = run_octavo(args.model, test, n_threads, args.cache)
        samples["octavo"].append(ours["tokens_per_second"])
        for name, program in args.rival:
            wait_until_idle()
            samples[name].append(run_rival(program, args.model, test, n_threads, args.cache))
    medians = {name: statistics.median(runs) for name, runs in samples.items()}
    best = max((speed for name, speed in medians.items() if name != "octavo"), default=0.0)
    kind, n, depth = test
    return {
        "test": f"{kind}{n}@{depth}",
        "threads": n_threads,
        "cache": args.cache,
        "medians": medians,
        "samples": samples,
        "to_best": medians["octavo"] / best if best else None,
        "bytes_per_token": ours.get("bytes_per_token"),
        "operations_per_token": ours.get("operations_per_token"),
    }


def with_floor(row: dict[str, Any], limit: dict[str, float]) -> dict[str, Any]:
    """The row with its distance to what the machine allows."""
    speed = row["medians"]["octavo"]
    if row["bytes_per_token"]:
        row["of_floor"] = speed * row["bytes_per_token"] / 1e9 / limit["GB/s"]
    elif row["operations_per_token"]:
        row["of_floor"] = speed * row["operations_per_token"] / 1e9 / limit["Gop/s"]
    return row


def numbers(text: str) -> list[int]:
    """ "1,2" -> [1, 2]"""
    return [int(part) for part in text.split(",") if part]


def tests_of(args: argparse.Namespace) -> Iterable[tuple[str, int, int]]:
    """The tests that were asked for: (kind, tokens, depth)."""
    for n in numbers(args.prompt):
        yield "pp", n, 0
    for depth in numbers(args.depth):
        for n in numbers(args.predict):
            yield "tg", n, depth


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rival", action="append", default=[], type=lambda s: s.split("=", 1))
    parser.add_argument("-t", dest="threads", default="1,2")
    parser.add_argument("-p", dest="prompt", default="512")
    parser.add_argument("-n", dest="predict", default="64")
    parser.add_argument("-d", dest="depth", default="0")
    parser.add_argument("--cache", default="f16")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for n_threads in numbers(args.threads):
        limit = limits(n_threads)
        print(f"{n_threads} threads: {limit['GB/s']:.1f} GB/s, {limit['Gop/s']:.0f} Gop/s int8")
        for test in tests_of(args):
            row = with_floor(compare(args, test, n_threads), limit)
            rows.append(row)
            speeds = "  ".join(f"{name} {speed:.1f}" for name, speed in row["medians"].items())
            ratio = f"{row['to_best']:.2f} x best" if row["to_best"] else ""
            floor = f"{row['of_floor']:.2f} of floor" if "of_floor" in row else ""
            print(f"  {row['test']:14} {speeds}  {ratio}  {floor}", flush=True)
    print(json.dumps({"model": args.model.name, "rows": rows}))


if __name__ == "__main__":
    main()
