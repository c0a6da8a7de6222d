"""Launches that begin while the one before them ends: programmatic dependent launch.

A step of few tokens is a chain of some hundred short kernels. NVIDIA's cards from Hopper on can
have a kernel's programs in place, its weights on their way, while the one before still computes.
Kernels that are launched with `options()` have to call `take_over`, in all of their programs,
before they touch what another kernel writes, and before they write anything: what comes before it
may be nothing but addresses and weights. Since each waits for the whole of the one before, which
has waited for the whole of its own, all that was launched earlier is done then.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from octavo.ops.gpu.device import find
from octavo.ops.gpu.target import IS_KNOWN, cuda_capability_geq

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # a Triton that does not have them yet
    gdc_launch_dependents = gdc_wait = None

LEAST_ARCH = 90
_IS_KNOWN = tl.constexpr(IS_KNOWN.value and gdc_wait is not None)
# One thread asks for all.
_FETCH = tl.constexpr(
    "{ .reg .pred is_first; .reg .u32 thread;"
    " mov.u32 thread, %tid.x; setp.eq.u32 is_first, thread, 0;"
    " @is_first cp.async.bulk.prefetch.L2.global [$1], $2;"
    " mov.u32 $0, 0; }"
)
_TRIAL_LAUNCHES = 4
_here = threading.local()  # .is_apart: whether the next launch has to begin after all others


@triton.jit
def take_over():
    """Let the next launch begin, and wait until those before have ended."""
    if _IS_KNOWN:  # noqa: SIM102 (the compiler drops a branch by its constant alone)
        if cuda_capability_geq(9, 0):
            gdc_launch_dependents()
            gdc_wait()


@triton.jit
def fetch_ahead(first, n_bytes):
    """Bring bytes of a weight, from the pointer `first` on, into the second-level cache."""
    if _IS_KNOWN:  # noqa: SIM102
        if cuda_capability_geq(9, 0):
            # In units of 16, which do not go beyond an allocation: these are of 512.
            address = first.to(tl.int64)
            start = address // 16 * 16
            size = (address - start + n_bytes + 15) // 16 * 16
            tl.inline_asm_elementwise(
                _FETCH, "=r,l,r", [start, size.to(tl.int32)], tl.int32, is_pure=False, pack=1
            )


def options() -> dict[str, Any]:
    """Of the next launch, whose kernel calls `take_over`."""
    is_apart = stand_apart(False)
    return {"launch_pdl": True} if works() and not is_apart else {}


def stand_apart(is_apart: bool = True) -> bool:
    """Let the next launch begin after everything, because it does not follow a kernel alone, but
    a copy, a wait, or the work of two streams.

    Returns: whether that was so already.
    """
    before: bool = getattr(_here, "is_apart", True)
    _here.is_apart = is_apart
    return before


@cache
def works() -> bool:
    """Whether launches can begin so here, in a recorded step too: tried with a small one."""
    if not _IS_KNOWN.value or find().is_amd or find().arch < LEAST_ARCH:
        return False
    try:
        return _try()
    except (RuntimeError, KeyError):  # of the driver; of a Triton without this option
        return False


@triton.jit
def _count(number):
    take_over()
    tl.store(number, tl.load(number) + 1)


def _try() -> bool:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    number = torch.zeros(1, dtype=torch.int32, device=find().torch_device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            _count[(1,)](number, launch_pdl=True)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(_TRIAL_LAUNCHES):
                _count[(1,)](number, launch_pdl=True)
        finally:
            graph.capture_end()
        graph.replay()
        stream.synchronize()
    return int(number.item()) == 2 + _TRIAL_LAUNCHES
