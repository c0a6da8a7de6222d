"""What this machine has: memory, cores, instruction set."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from octavo.settings import Settings

# Where Linux states the memory limit of a container; "max": there is none.
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Hardware:
    """One machine. A plan is made for it; tests make up their own."""

    memory_bytes: int
    available_bytes: int  # what programs can still get, file caches included
    n_threads: int  # worker threads: physical cores, or what OCTAVO_THREADS says
    isa: str  # level in force, as `Settings.isa` names them; "": no native kernels
    has_huge_pages: bool  # anonymous memory comes in huge pages where asked for


def probe() -> Hardware:
    """The machine this runs on, now."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    limit = _container_limit_bytes()
    if limit is not None:
        total, available = min(total, limit), min(available, limit)
    return Hardware(
        memory_bytes=total,
        available_bytes=available,
        n_threads=Settings.from_environment().threads or _physical_cores(),
        isa=_isa(),
        has_huge_pages=sys.platform == "linux",
    )


def _container_limit_bytes() -> int | None:
    try:
        limit = _CONTAINER_LIMIT.read_text()
    except OSError:
        return None
    return int(limit) if limit.strip().isdecimal() else None


def _physical_cores() -> int:
    """Physical cores, but no more than this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    logical = allowed or 1
    return min(psutil.cpu_count(logical=False) or logical, logical)


def fast_formats() -> frozenset[str] | None:
    """Block formats that the processor has fast kernels for; None: there are no native ones."""
    try:
        from octavo.ops import cpu
    except ImportError:
        return None
    return cpu.fast_formats()


def _isa() -> str:
    try:
        from octavo.ops import cpu
    except ImportError:  # the package runs without its native part, slowly
        return ""
    return cpu.level()
