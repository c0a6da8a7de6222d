"""A short soak of a real server process: nothing fails, and everything is given back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from serve_process import serve_process
from soak import busy_slots, growth, soak, until_idle


def test_clients_that_come_and_go(tiny_file: Callable[..., Path]) -> None:
    async def idle(address: str) -> int:
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:
            await until_idle(http)
            return await busy_slots(http)

    with serve_process(tiny_file("qwen35"), "--parallel", "4", "--max-queue", "64") as server:
        tally = asyncio.run(soak(server.address, server.pid, 12, n_requests=80, longest_words=60))
        assert asyncio.run(idle(server.address)) == 0
    assert not tally.errors
    assert tally.n_requests >= 80
    assert {"stayed", "left before the answer", "left in the answer"} <= tally.ended.keys()
    failed = [line for line in server.lines if '"status": 5' in line or "Traceback" in line]
    assert not failed


def test_growth_is_told() -> None:
    flat = [(float(at), 100) for at in range(100)]
    assert growth(flat) == 0
    warming = [(at, 50 if at < 10 else n) for at, n in flat]
    assert growth(warming) == 0
    assert growth([(at, n + int(at)) for at, n in flat]) > 0.02
