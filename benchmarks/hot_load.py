"""How long a model takes to be there: `python benchmarks/hot_load.py MODEL`.

A server runs with a tiny model; MODEL is loaded beside it by `POST /v1/models/load`, waited for and
given up, again and again, its file in the system's cache. Then the same parts in this process: how
long the file's bytes take alone, and where the rest goes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

import octavo
from octavo.loading import locate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from serve_process import serve_process
from tiny_models import make_tiny


def read_file(path: Path) -> float:
    """Seconds for all bytes, which brings them into the system's cache too."""
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 22)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def over_http(path: Path, tiny: Path, rounds: int, flags: tuple[str, ...]) -> dict[str, Any]:
    """Seconds of `load` with `wait`, and what the server's log says of each."""
    times = []
    with (
        serve_process(tiny, "--model", f"big={path}", *flags) as server,
        httpx.Client(base_url=server.address, timeout=600) as http,
    ):
        for _ in range(rounds + 1):  # the first imports
            began = time.perf_counter()
            answer = http.post("/v1/models/load", json={"model": "big", "wait": True})
            times.append(time.perf_counter() - began)
            assert answer.json()["status"]["value"] == "loaded", answer.text
            http.post("/v1/models/unload", json={"model": "big"}).raise_for_status()
        log = "".join(server.lines)
    said = [float(s) for s in re.findall(r"model big: loaded in ([\d.]+) s", log)][1:]
    return {
        "first_seconds": round(times[0], 3),
        "seconds": round(statistics.median(times[1:]), 3),
        "fastest_seconds": round(min(times[1:]), 3),
        "loader_seconds": statistics.median(said),
    }


def in_process(path: Path, rounds: int, threads: int) -> tuple[float, str]:
    """Median seconds of `octavo.load`, and a profile of one."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        session = octavo.load(path, threads=threads)
        times.append(time.perf_counter() - began)
        session.close()
    profile = cProfile.Profile()
    session = profile.runcall(octavo.load, path, threads=threads)
    session.close()
    with tempfile.TemporaryFile("w+") as text:
        pstats.Stats(profile, stream=text).sort_stats("cumtime").print_stats(25)
        text.seek(0)
        return statistics.median(times), text.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="alias or path")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    path = locate(args.model)
    read_file(path)
    file_seconds = min(read_file(path) for _ in range(args.rounds))
    flags = ("-t", str(args.threads))
    with tempfile.TemporaryDirectory() as folder:
        found = over_http(path, make_tiny("llama", Path(folder) / "t.gguf"), args.rounds, flags)
    own, profile = in_process(path, args.rounds, args.threads)
    if args.profile:
        print(profile)
    found |= {"in_process_seconds": round(own, 3), "file_seconds": round(file_seconds, 3)}
    size = {"model": path.name, "mib": round(path.stat().st_size / 2**20, 1)}
    print(json.dumps({"test": "hot_load", **size, **found}))


if __name__ == "__main__":
    main()
