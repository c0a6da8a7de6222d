"""What kernels ask, while they are compiled, about the device that they are compiled for."""

from __future__ import annotations

import triton.language as tl

from octavo.ops.gpu.device import IS_INTERPRETED

try:
    from triton.language.target_info import cuda_capability_geq
except ImportError:  # a Triton that does not have it yet
    cuda_capability_geq = None

__all__ = ["IS_KNOWN", "cuda_capability_geq"]

# Only where this holds may `cuda_capability_geq` be asked, in an `if` of its own.
IS_KNOWN = tl.constexpr(cuda_capability_geq is not None and not IS_INTERPRETED)
