"""In which kernels the card spends its time, by torch's profiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from octavo.ops.gpu.device import IS_INTERPRETED, synchronise


class Kernel(NamedTuple):
    """All launches of one kernel, or all copies of one kind."""

    name: str
    n_launches: int
    seconds: float


@contextmanager
def profiled() -> Iterator[list[Kernel]]:
    """What the card does inside, whichever thread launches it, the longest first; known at the end.

    The interpreter has no kernels. Everything takes a little longer meanwhile.
    """
    kernels: list[Kernel] = []
    if IS_INTERPRETED:
        yield kernels
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        yield kernels
        synchronise()
    events = [e for e in found.key_averages() if e.device_time_total]
    kernels += [Kernel(e.key, e.count, e.device_time_total / 1e6) for e in events]
    kernels.sort(key=lambda kernel: -kernel.seconds)
