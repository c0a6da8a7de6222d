"""How long a model takes to be there: `python benchmarks/hot_load.py MODEL`.

A server runs with a tiny model; MODEL is loaded beside it by `POST /v1/models/load`, waited for and
given up, again and again, its file in the system's cache. Then the same parts in this process: how
long the file's bytes take alone, and where the rest goes. The last line is JSON.

With `--beside OTHER` that model is the server's first and writes all the time, while a request
names MODEL, which is loaded for it, and another names a damaged file: how long the first answer
takes, and how much longer the silences of OTHER become. MODEL must still be there at the end.
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
import threading
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


class Writer:
    """A client that has a model write without end, and notes when something comes."""

    def __init__(self, address: str) -> None:
        self.times: list[float] = []
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Writer:
        self._thread.start()
        while len(self.times) < 20:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        body = {"prompt": "The river", "max_tokens": -1, "ignore_eos": True, "stream": True}
        with httpx.Client(base_url=self._address, timeout=600) as http:
            while not self._is_over.is_set():  # until the context is full, and again
                with http.stream("POST", "/v1/completions", json=body) as answer:
                    for _ in answer.iter_raw():
                        self.times.append(time.perf_counter())
                        if self._is_over.is_set():
                            return

    def silence(self, began: float, ended: float) -> dict[str, float]:
        """Seconds between two events in that time: the median and the most."""
        times = [began, *(t for t in self.times if began < t < ended), ended]
        gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
        return {"median": round(statistics.median(gaps), 3), "most": round(max(gaps), 3)}


def by_request(path: Path, other: Path, rounds: int, flags: tuple[str, ...]) -> dict[str, Any]:
    """Seconds to the first token of a model that is not there yet, beside one that writes."""
    with tempfile.TemporaryDirectory() as folder:
        damaged = Path(folder) / "damaged.gguf"
        with path.open("rb") as file:
            damaged.write_bytes(file.read(32 << 20))
        names = "--model", f"big={path}", "--model", f"damaged={damaged}"
        with (
            serve_process(other, *names, *flags) as server,
            httpx.Client(base_url=server.address, timeout=600) as http,
            Writer(server.address) as writer,
        ):
            return _asked(http, writer, rounds)


def _asked(http: httpx.Client, writer: Writer, rounds: int) -> dict[str, Any]:
    def ask(model: str) -> tuple[httpx.Response, float]:
        began = time.perf_counter()
        body = {"model": model, "prompt": "The river", "max_tokens": 1, "temperature": 0}
        answer = http.post("/v1/completions", json=body)
        return answer, time.perf_counter() - began

    alone = writer.silence(writer.times[0], time.perf_counter())
    cold, warm, began = [], [], time.perf_counter()
    for left in reversed(range(rounds)):
        answer, seconds = ask("big")
        answer.raise_for_status()
        cold.append(seconds)
        warm.append(ask("big")[1])
        if left:
            http.post("/v1/models/unload", json={"model": "big"}).raise_for_status()
    during = writer.silence(began, time.perf_counter())
    failed, failed_seconds = ask("damaged")
    states = {m["id"]: m["status"]["value"] for m in http.get("/v1/models").json()["data"]}
    return {
        "first_token_seconds": [round(s, 3) for s in cold],
        "first_token_when_loaded_seconds": [round(s, 3) for s in warm],
        "silence_before": alone,
        "silence_during": during,
        "damaged": [failed.status_code, round(failed_seconds, 3)],
        "then": states,
        "big_answers_after": ask("big")[0].status_code,
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
    parser.add_argument("--beside", help="alias or path of a model that writes meanwhile")
    parser.add_argument("--flag", action="append", default=[], help="of octavo serve: --flag=-c=64")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    path = locate(args.model)
    read_file(path)
    if args.beside:
        more = [word for flag in args.flag for word in flag.split("=", 1)]
        flags = ("-t", str(args.threads), *more)
        found = by_request(path, locate(args.beside), args.rounds, flags)
        print(json.dumps({"test": "hot_load", "model": path.name, "beside": args.beside, **found}))
        return
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
