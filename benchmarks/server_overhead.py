"""What HTTP adds to a streamed token: `python benchmarks/server_overhead.py MODEL`.

The same prompt, greedy, to the same length: in this process, as `octavo run` does it, and from a
server that streams, read by plain httpx and by OpenAI's client. The ways take turns, so that a
machine that grows slower does so for all. A time is from the first token to the last, by token, and
the median of the rounds. `server_cpu_ms` is the processor time of the server by token, in all its
threads but those that compute the model (Linux), and what it costs the engine's thread to wake the
event loop, measured by itself as `wake_cpu_ms`. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import uvicorn

import octavo
from octavo.loading import locate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from serve_process import serve_process

PROMPT = "The river was low that summer, and the ferry could not cross before noon."


def tokens_of(session: octavo.Session, n: int) -> Iterator[object]:
    """Events of an answer in this process."""
    options = {"max_tokens": n, "temperature": 0.0, "ignore_eos": True}
    return session.generate(PROMPT, stream=True, **options)


def body_of(n: int) -> dict[str, Any]:
    return {
        "model": "m",
        "prompt": PROMPT,
        "max_tokens": n,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
    }


def chunks_of(client: httpx.Client, n: int) -> Iterator[object]:
    """Chunks with text, read as lines."""
    with client.stream("POST", "/v1/completions", json=body_of(n)) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                if chunk["choices"][0]["text"]:
                    yield chunk


def openai_chunks_of(client: openai.OpenAI, n: int) -> Iterator[object]:
    """The same by OpenAI's package."""
    body = body_of(n)
    extra = {"ignore_eos": body.pop("ignore_eos")}
    for chunk in client.completions.create(**body, extra_body=extra):
        if chunk.choices[0].text:
            yield chunk


def ms_per_token(events: Iterable[object], n_tokens: int) -> float:
    """From the first event to the last. Tokens without text have no event of their own."""
    times = [time.perf_counter() for _ in events]
    return (times[-1] - times[0]) * 1000 / (n_tokens - 1)


class ServerClock:
    """Processor time of a server, beside the threads that compute the model."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder = Path(f"/proc/{pid}/task")

    @property
    def works(self) -> bool:
        return (self._folder / str(self._pid) / "schedstat").exists()

    def read(self) -> tuple[float, dict[str, float]]:
        """(seconds of the whole process, seconds of each thread that lives)."""
        threads = {}
        for thread in self._folder.iterdir():
            with contextlib.suppress(OSError):  # it may end right now
                threads[thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
        return time.clock_gettime(~self._pid << 3 | 2), threads  # as clock_getcpuclockid makes it

    def beside_the_model(
        self, before: tuple[float, dict[str, float]], after: tuple[float, dict[str, float]]
    ) -> float:
        """Seconds of the event loop, and of threads that came for a reply and went.

        The model's threads live before and after it; of the others only the first, the loop.
        What the engine's thread does to wake the loop is not in it: see `wake_cpu_ms`.
        """
        stayed = before[1].keys() & after[1].keys() - {str(self._pid)}
        model = sum(after[1][thread] - before[1][thread] for thread in stayed)
        return after[0] - before[0] - model


def wake_cpu_ms(n: int = 100, pause_seconds: float = 0.01) -> float:
    """Processor time for a thread to wake an event loop that waits, as the engine's does."""
    make = uvicorn.Config("no application").get_loop_factory() or asyncio.new_event_loop
    loop = make()
    waiting = threading.Thread(target=loop.run_forever)
    waiting.start()
    times = []
    for _ in range(n):
        time.sleep(pause_seconds)
        before = time.thread_time()
        loop.call_soon_threadsafe(lambda: None)
        times.append(time.thread_time() - before)
    loop.call_soon_threadsafe(loop.stop)
    waiting.join()
    loop.close()
    return statistics.median(times) * 1000


def measure(args: argparse.Namespace) -> dict[str, Any]:
    path = locate(args.model)
    wishes = {"context": 2048, "sequences": 1, "threads": args.threads, "speculate": "off"}
    flags = ("-c", "2048", "--parallel", "1", "--speculate", "off", "-t", str(args.threads))
    with (
        octavo.load(path, **wishes) as session,
        serve_process(path, *flags) as server,
        httpx.Client(base_url=server.address, timeout=600) as plain,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", timeout=600) as client,
    ):
        ways: dict[str, Callable[[], Iterable[object]]] = {
            "in_process": lambda: tokens_of(session, args.tokens),
            "httpx": lambda: chunks_of(plain, args.tokens),
            "openai": lambda: openai_chunks_of(client, args.tokens),
        }
        clock = ServerClock(server.pid)
        times: dict[str, list[float]] = {name: [] for name in ways}
        server_cpu: list[float] = []
        for round_ in range(args.rounds + 1):  # the first warms up
            for name, events in ways.items():
                before = clock.read() if clock.works else None
                took = ms_per_token(events(), args.tokens)
                if round_ == 0:
                    continue
                times[name].append(took)
                if before and name == "httpx":
                    spent = clock.beside_the_model(before, clock.read())
                    server_cpu.append(spent * 1000 / args.tokens)
        wake = wake_cpu_ms()
        server_cpu = [spent + wake for spent in server_cpu]
    found = {"model": path.name, "threads": args.threads, "wake_cpu_ms": round(wake, 3)}
    return summary(times, server_cpu) | found


def summary(times: dict[str, list[float]], server_cpu: list[float]) -> dict[str, Any]:
    own = statistics.median(times["in_process"])
    found: dict[str, Any] = {"test": "server_overhead", "rounds": len(times["in_process"])}
    for name, each in times.items():
        found[f"{name}_ms"] = round(statistics.median(each), 3)
        found[f"{name}_ms_fastest"] = round(min(each), 3)
    for name in ("httpx", "openai"):
        ratios = [a / b for a, b in zip(times[name], times["in_process"], strict=True)]
        found[f"{name}_overhead"] = round(statistics.median(ratios) - 1, 4)
        found[f"{name}_overhead_fastest"] = round(
            min(times[name]) / min(times["in_process"]) - 1, 4
        )
    if server_cpu:
        found["server_cpu_ms"] = round(statistics.median(server_cpu), 3)
        found["server_cpu_share"] = round(statistics.median(server_cpu) / own, 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="alias or path")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
