"""Memory and cores of this machine, without an import where the system tells them in a file.

Linux does. Elsewhere psutil knows; it takes 9 ms to import there, a twentieth of a start.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from octavo.record import dataclass

_MEMORY = Path("/proc/meminfo")
_PROCESSORS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Memory:
    """In bytes."""

    total: int
    available: int  # what programs can still get, file caches included
    swap: int  # in all


def memory() -> Memory:
    """The machine's, now."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = (line.partition(":") for line in _MEMORY.read_text().splitlines())
        told = {name: value.removesuffix("kB") for name, _, value in lines}
        names = ("MemTotal", "MemAvailable", "SwapTotal")
        return Memory(*(int(told[name]) * 1024 for name in names))
    import psutil

    found = psutil.virtual_memory()
    return Memory(found.total, found.available, psutil.swap_memory().total)


def physical_cores() -> int:
    """Cores, each counted once however many threads it runs at a time.

    No more than this process may run on, in a container or under taskset.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    logical = allowed or 1
    return min(_cores() or logical, logical)


def _cores() -> int | None:
    with contextlib.suppress(OSError):
        siblings = _PROCESSORS.glob("cpu[0-9]*/topology/core_cpus_list")
        if count := len({path.read_text() for path in siblings}):
            return count
    import psutil

    count = psutil.cpu_count(logical=False)
    return count if count is None else int(count)
