"""Many clients that come and go: `python benchmarks/soak.py --minutes 10 --clients 64`.

A server process of its own answers streams (and some whole answers) in the shapes of all APIs. Half
of the clients leave at a random moment: while they wait, in the prompt, in the answer. At the end
nothing may have failed, memory must be as flat as it was after the warm-up, and every slot must be
free a second later. Then it is measured how long the engine computes on for a client that is gone.
The last line is JSON; the exit code is 1 if something was not as it has to be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from octavo.loading import locate
from serve_process import serve_process
from tiny_models import make_tiny

MOST_GROWTH = 0.02  # of resident memory, after the warm-up
WARM_UP = 0.2  # of the time
SAMPLE_SECONDS = 2.0
FREE_SECONDS = 1.0  # after the last client
GONE_SECONDS = 1.0  # most that the engine may compute on
PROBES = 5  # times that each kind of leaving is measured
WORDS = (
    *("river", "summer", "ferry", "water", "stone", "bridge", "letter", "window", "garden"),
    *("engine", "paper", "market", "winter", "harbour", "candle", "railway", "orchard"),
)

# Path, the end of a stream, and how a body is made of (text, tokens).
APIS: dict[str, tuple[str, Callable[[str, int], dict[str, Any]]]] = {
    "/v1/chat/completions": (
        "data: [DONE]",
        lambda text, n: {"messages": [{"role": "user", "content": text}], "max_tokens": n},
    ),
    "/v1/completions": ("data: [DONE]", lambda text, n: {"prompt": text, "max_tokens": n}),
    "/v1/messages": (
        '"message_stop"',
        lambda text, n: {"messages": [{"role": "user", "content": text}], "max_tokens": n},
    ),
    "/v1/responses": ('"usage"', lambda text, n: {"input": text, "max_output_tokens": n}),
    "/completion": ('"stop":true', lambda text, n: {"prompt": text, "n_predict": n}),
}


@dataclass
class Tally:
    """What the clients saw."""

    ended: Counter[str] = field(default_factory=Counter)  # by how
    errors: list[str] = field(default_factory=list)
    bytes_resident: list[tuple[float, int]] = field(default_factory=list)  # (seconds, bytes)

    @property
    def n_requests(self) -> int:
        return self.ended.total()


class Client:
    """One after another asks, and sometimes leaves."""

    def __init__(self, http: httpx.AsyncClient, rng: random.Random, longest_words: int) -> None:
        self._http = http
        self._rng = rng
        self._longest = longest_words

    async def ask(self) -> str:
        """One request -> how it ended.

        Raises:
            AssertionError, httpx.HTTPError: not as it has to.
        """
        rng = self._rng
        path = rng.choice(list(APIS))
        end, make = APIS[path]
        words = rng.choices(WORDS, k=rng.choice((3, 10, 40, self._longest)))
        body = {**make(" ".join(words), rng.choice((1, 8, 32, 96))), "stream": rng.random() < 0.85}
        leaves = rng.choice(("no", "no", "no", "at once", "at the first", "later"))
        if leaves == "no":
            return await self._stay(path, body, end)
        return await self._leave(path, body, leaves)

    async def _stay(self, path: str, body: dict[str, Any], end: str) -> str:
        async with self._http.stream("POST", path, json=body) as answer:
            text = (await answer.aread()).decode()
        assert answer.status_code == 200, text
        if body["stream"]:
            assert end in text[-3000:], text[-300:]
            assert "_error" not in text, text[-300:]
        return "stayed" if body["stream"] else "stayed, whole"

    async def _leave(self, path: str, body: dict[str, Any], when: str) -> str:
        if when == "at once" or not body["stream"]:
            asking = asyncio.ensure_future(self._http.post(path, json=body))
            await asyncio.sleep(self._rng.choice((0.0, 0.01, 0.1, 1.0)))
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                assert (await asking).status_code == 200
            return "left before the answer"
        async with self._http.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            n = 1 if when == "at the first" else self._rng.randint(2, 30)
            async for _ in answer.aiter_raw():
                n -= 1
                if n == 0:
                    break
        return "left at the first event" if when == "at the first" else "left in the answer"


async def soak(
    address: str,
    pid: int,
    n_clients: int,
    *,
    seconds: float = float("inf"),
    n_requests: int | None = None,
    longest_words: int = 80,
    seed: int = 7,
) -> Tally:
    """Ask for so long, or so often."""
    tally, began = Tally(), time.monotonic()

    def is_over() -> bool:
        enough = n_requests is not None and tally.n_requests >= n_requests
        return enough or len(tally.errors) > 20 or time.monotonic() - began > seconds

    async def live(number: int) -> None:
        client = Client(http, random.Random(f"{seed}-{number}"), longest_words)
        while not is_over():
            try:
                tally.ended[await client.ask()] += 1
            except (AssertionError, httpx.HTTPError) as error:
                tally.errors.append(f"{type(error).__name__}: {error}"[:500])

    async def watch() -> None:
        process = psutil.Process(pid)
        while True:
            tally.bytes_resident.append((time.monotonic() - began, process.memory_info().rss))
            await asyncio.sleep(SAMPLE_SECONDS)

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=n_clients)
    async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as http:
        watcher = asyncio.ensure_future(watch())
        await asyncio.gather(*(live(number) for number in range(n_clients)))
        watcher.cancel()
    return tally


def growth(samples: list[tuple[float, int]]) -> float:
    """How much the last quarter holds beyond the first quarter after the warm-up, as a share."""
    warm = [n for at, n in samples if at >= samples[-1][0] * WARM_UP]
    quarter = max(1, len(warm) // 4)
    return statistics.median(warm[-quarter:]) / statistics.median(warm[:quarter]) - 1


def in_tenths(samples: list[tuple[float, int]]) -> list[float]:
    """MiB in each tenth of the time."""
    end = samples[-1][0] or 1.0
    parts = [[n for at, n in samples if tenth <= at * 10 / end <= tenth + 1] for tenth in range(10)]
    return [round(statistics.median(part) / 2**20, 1) for part in parts if part]


async def until_idle(http: httpx.AsyncClient) -> float:
    """Seconds until nothing runs or waits, in the engine or before it."""
    began = time.perf_counter()
    while time.perf_counter() - began < 60:
        lines = (await http.get("/metrics")).text.splitlines()
        names = ("octavo_requests_running{", "octavo_requests_waiting{", "octavo_requests_admitted")
        if all(line.endswith(" 0") for line in lines if line.startswith(names)):
            break
        await asyncio.sleep(0.005)
    return time.perf_counter() - began


async def busy_slots(http: httpx.AsyncClient) -> int:
    return sum(slot["is_processing"] for slot in (await http.get("/slots")).json())


async def leave(http: httpx.AsyncClient, words: int, stream: bool, after: float) -> None:
    """Ask for something long, and leave after so many seconds."""
    text = " ".join(random.choices(WORDS, k=words))
    body = {"prompt": text, "max_tokens": 4000, "ignore_eos": True, "stream": stream}
    asking = asyncio.ensure_future(http.post("/v1/completions", json=body))
    await asyncio.sleep(after)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking


async def crowd(http: httpx.AsyncClient, n: int, stream: bool) -> None:
    await asyncio.gather(*(leave(http, 5, stream, 0.7) for _ in range(n)))


async def measure_gone(address: str, longest_words: int, n_slots: int) -> dict[str, float]:
    """Most seconds that the engine computed on, by where the request was and how it was asked."""
    found: dict[str, float] = {}
    async with httpx.AsyncClient(base_url=address, timeout=600) as http:

        async def worst(name: str, go: Callable[[], Awaitable[None]]) -> None:
            for _ in range(PROBES):
                await until_idle(http)
                await go()
                found[name] = round(max(found.get(name, 0.0), await until_idle(http)), 3)

        for stream in (True, False):
            how = "streamed" if stream else "whole"
            # All leave together: those that compute, and as many that wait.
            await worst(f"queued, {how}", partial(crowd, http, 2 * n_slots, stream))
            await worst(f"prompt, {how}", partial(leave, http, longest_words, stream, 0.15))
            await worst(f"answer, {how}", partial(leave, http, 5, stream, 0.7))
    return found


async def whole_run(args: argparse.Namespace, address: str, pid: int) -> dict[str, Any]:
    tally = await soak(
        address,
        pid,
        args.clients,
        seconds=args.minutes * 60,
        longest_words=args.words,
        seed=args.seed,
    )
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        await asyncio.sleep(FREE_SECONDS)
        busy, idle = await busy_slots(http), await until_idle(http)
    gone = await measure_gone(address, args.probe_words or args.words, args.parallel)
    grown = growth(tally.bytes_resident)
    violations = [f"{len(tally.errors)} errors"] if tally.errors else []
    violations += [f"memory grew by {grown:.1%}"] if grown > MOST_GROWTH else []
    violations += [f"{busy} slots still compute"] if busy else []
    slow = {name: seconds for name, seconds in gone.items() if seconds > GONE_SECONDS}
    violations += [f"computed on for gone clients: {slow}"] if slow else []
    return {
        "test": "soak",
        "minutes": args.minutes,
        "clients": args.clients,
        "requests": tally.n_requests,
        "ended": dict(tally.ended),
        "errors": tally.errors[:5],
        "resident_mib": in_tenths(tally.bytes_resident),
        "memory_growth": round(grown, 4),
        "busy_slots_after_a_second": busy,
        "idle_after_seconds": round(FREE_SECONDS + idle, 3),
        "gone_seconds": gone,
        "violations": violations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="alias or path; none: a tiny one, made here")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--parallel", type=int, default=8)
    # Small, so that the whole cache has been used once when the warm-up is over.
    parser.add_argument("--context", type=int, default=512, help="of each sequence")
    parser.add_argument("--words", type=int, default=80, help="of the longest prompts")
    parser.add_argument("--probe-words", type=int, help="of prompts that are left half computed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = locate(args.model) if args.model else make_tiny("qwen35", Path(folder) / "t.gguf")
        flags = ("--parallel", str(args.parallel), "-t", str(args.threads))
        room = ("--max-queue", str(2 * args.clients), "-c", str(args.context))
        with serve_process(path, *flags, *room) as server:
            result = asyncio.run(whole_run(args, server.address, server.pid))
        result["model"] = path.stem if args.model else "tiny qwen35"
    print(json.dumps(result))
    sys.exit(bool(result["violations"]))


if __name__ == "__main__":
    main()
