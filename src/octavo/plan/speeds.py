"""How fast this machine is: measured once in about a second, kept in the cache folder.

A decoded token cannot be faster than its bytes at the speed of memory, and a prompt not faster
than its products at the processor's peak. Both are measured with the native core's own loops.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from octavo import arena
from octavo.record import dataclass
from octavo.release import release
from octavo.settings import Settings

VERSION = 1
_FILE = "speeds.json"
_ROUNDS = 3  # the best of these: other programs only slow a measurement down
_MOST_BYTES = 512 << 20
_LEAST_BYTES = 64 << 20
_PEAK_ROUNDS = 300_000


@dataclass(frozen=True)
class Speeds:
    """Of the processor's worker threads together."""

    read_bytes_per_second: float  # memory, read by all threads in large pieces
    copy_bytes_per_second: float  # bytes copied by one thread, each read and written
    int8_ops_per_second: float  # a multiply-add counts as two
    float_ops_per_second: float


def known(settings: Settings, n_threads: int, isa: str) -> Speeds | None:
    """What was measured before on this machine with as many threads; None: nothing."""
    kept = _read(settings.cache_dir / _FILE)
    return kept.get(_key(n_threads, isa)) if kept else None


def measured(settings: Settings, n_threads: int, isa: str, available_bytes: int) -> Speeds | None:
    """What is known, else measured now and kept. None: there are no native kernels."""
    found = known(settings, n_threads, isa)
    if found is None and isa:
        found = measure(n_threads, available_bytes)
        _keep(settings.cache_dir / _FILE, _key(n_threads, isa), found)
    return found


def measure(n_threads: int, available_bytes: int) -> Speeds:
    """Measure, at the instruction-set level in force. Takes about a second on idle cores."""
    from octavo import _native

    pool = _native.Pool(n_threads)
    n_bytes = max(_LEAST_BYTES, min(_MOST_BYTES, available_bytes // 8 >> 21 << 21))
    memory = arena.allocate(n_bytes)
    memory.fill(1)  # pages that were never written are one and the same
    half = n_bytes // 2
    words, sink = np.zeros(n_bytes >> 20, np.int64), np.zeros(4 * n_threads, np.float32)
    read, dots, floats = _native.Program(), _native.Program(), _native.Program()
    read.read_memory(memory, words)
    n_dots = dots.dot_peak(_PEAK_ROUNDS, sink)
    n_floats = floats.fma_peak(_PEAK_ROUNDS, sink)
    return Speeds(
        read_bytes_per_second=n_bytes / _best(lambda: read.run(pool)),
        copy_bytes_per_second=half / _best(lambda: np.copyto(memory[half:], memory[:half])),
        int8_ops_per_second=n_dots / _best(lambda: dots.run(pool)),
        float_ops_per_second=n_floats / _best(lambda: floats.run(pool)),
    )


def _best(run: Callable[[], None]) -> float:
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def processor() -> str:
    """The processor's name: "AMD Ryzen 7 7700X 8-Core Processor"."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _key(n_threads: int, isa: str) -> str:
    """What a measurement depends on; another one of these is another measurement."""
    return f"{platform.node()}, {processor()}, {n_threads} threads, {isa}, {release() or 'source'}"


def _read(path: Path) -> dict[str, Speeds]:
    """All that is kept. What is no file of this version counts as nothing: it is made again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["version"] != VERSION:
            return {}
        names = [field.name for field in fields(Speeds)]
        rows = {key: [float(row[name]) for name in names] for key, row in kept["machines"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {key: Speeds(*row) for key, row in rows.items() if min(row) > 0}


def _keep(path: Path, key: str, speeds: Speeds) -> None:
    """Add to the file; it appears whole. A folder that cannot be written to is no error."""
    rows = {name: asdict(row) for name, row in (_read(path) | {key: speeds}).items()}
    text = json.dumps({"version": VERSION, "machines": rows}, indent=1)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
