"""Kernels that are brought up while the one before still runs (programmatic dependent launch).

A decode step is some 500 short kernels, and starting one takes as long as many of them run. From
compute capability 9.0 on, a kernel launched with `OVERLAP` may be started once all programs of the
one before have begun; its first statement, `wait_for_inputs()`, waits until that one has ended and
its results can be seen. Every kernel launched so has to call it before it touches memory.

Off unless OCTAVO_GPU_OVERLAP=1: on an H200 it gained nothing (245 tokens a second with it, 250
without), since kernels ask for their weights only after they have waited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from octavo.ops.gpu.device import IS_INTERPRETED
from octavo.settings import Settings


def _can_overlap() -> bool:
    if IS_INTERPRETED or not torch.cuda.is_available() or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability() >= (9, 0) and Settings.from_environment().gpu_overlap


_CAN_OVERLAP = tl.constexpr(_can_overlap())
OVERLAP: Mapping[str, Any] = {"launch_pdl": True} if _CAN_OVERLAP.value else {}


@triton.jit
def wait_for_inputs():
    """Wait for the kernel before, and let the one after be brought up."""
    if _CAN_OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
