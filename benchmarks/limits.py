"""What the processor can do at most, measured with the threads that `octavo.ops.cpu` uses."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from octavo import _native
from octavo.ops import cpu

SAMPLE_SECONDS = 0.4
MEMORY_BYTES = 1 << 30


def best_seconds(run: Callable[[], object]) -> float:
    """The shortest of the runs that fit into the time, at least three: others only slow one."""
    run()
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < SAMPLE_SECONDS:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def memory_gb_s() -> float:
    """GB/s at which memory is read."""
    # A program keeps pointers: the arrays have to live as long.
    memory, read = np.ones(MEMORY_BYTES, np.uint8), _native.Program()
    sink = np.zeros(len(memory) >> 20, np.int64)
    read.read_memory(memory, sink)
    return len(memory) / best_seconds(lambda: read.run(cpu.pool())) / 1e9


def int8_gop_s() -> float:
    """Multiplications and additions of int8, billions a second."""
    return _peak(_native.Program.dot_peak)


def float_gop_s() -> float:
    """Multiplications and additions of float32, billions a second."""
    return _peak(_native.Program.fma_peak)


def _peak(add: Callable[[_native.Program, int, np.ndarray], int]) -> float:
    program, sink = _native.Program(), np.zeros(4 * cpu.pool().n_threads, np.float32)
    n_ops = add(program, 1_000_000, sink)
    return n_ops / best_seconds(lambda: program.run(cpu.pool())) / 1e9
