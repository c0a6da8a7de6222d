"""What this machine has: memory, cores, instruction set, graphics cards, measured speeds."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from octavo.record import dataclass
from octavo.settings import Settings

if TYPE_CHECKING:
    from octavo.plan.gpus import Gpu
    from octavo.plan.speeds import Speeds

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
    gpus: tuple[Gpu, ...] = ()
    speeds: Speeds | None = None  # None: never measured
    speeds_origin: str = "measured"
    page_file_bytes: int = 0  # swap space in all
    lock_limit_bytes: int | None = None  # memory that a program may lock; None: no limit
    pin_limit_bytes: int | None = None  # memory that the driver may pin; None: no limit


def probe(*, measure: bool = False) -> Hardware:
    """The machine this runs on, now.

    With `measure`, speeds that are not known yet are measured, which takes about a second.
    """
    from octavo.plan import gpus, speeds  # here, as `probe_processor` does without

    here, settings = probe_processor(), Settings.from_environment()
    if measure:
        found = speeds.measured(settings, here.n_threads, here.isa, here.available_bytes)
    else:
        found = speeds.known(settings, here.n_threads, here.isa)
    return replace(here, gpus=gpus.probe_gpus(), speeds=found)


def probe_processor() -> Hardware:
    """The same without graphics cards and speeds: all that a plan for the processor decides by.

    Asking a driver for its cards can take longer than everything else in a start.
    """
    total, available = main_memory()
    settings = Settings.from_environment()
    return Hardware(
        memory_bytes=total,
        available_bytes=available,
        n_threads=settings.threads or _physical_cores(),
        isa=_isa(),
        has_huge_pages=sys.platform == "linux",
        page_file_bytes=psutil.swap_memory().total,
        lock_limit_bytes=_lock_limit_bytes(),
        pin_limit_bytes=_pin_limit_bytes(total),
    )


def main_memory() -> tuple[int, int]:
    """Bytes in all and available now, as far as a container lets this program have them."""
    memory = psutil.virtual_memory()
    limit = _container_limit_bytes()
    if limit is None:
        return memory.total, memory.available
    return min(memory.total, limit), min(memory.available, limit)


def _lock_limit_bytes() -> int | None:
    """RLIMIT_MEMLOCK; systems without it set no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _pin_limit_bytes(total_bytes: int) -> int | None:
    """Windows, also as the host of WSL, lets the driver pin about half of the memory."""
    if sys.platform == "win32" or "microsoft" in platform.release().lower():
        return total_bytes // 2
    return None


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
