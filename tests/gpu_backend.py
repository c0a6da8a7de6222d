"""The GPU back end for tests: on a device where there is one, else in Triton's interpreter.

Import this before anything of Triton: the interpreter is chosen when kernels are defined.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the GPU back end needs torch: pip install octavo[gpu]")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the GPU back end needs triton: pip install octavo[gpu]")

from octavo.ops import gpu  # noqa: E402
from octavo.ops.gpu.device import IS_INTERPRETED, to_device, to_host  # noqa: E402

__all__ = ["IS_INTERPRETED", "gpu", "nmse", "to_device", "to_host", "torch"]


def nmse(found: Any, expected: np.ndarray) -> float:
    """Mean squared error over the mean square of what was expected; `found` may be a tensor."""
    values = found if isinstance(found, np.ndarray) else to_host(found)
    assert values.shape == expected.shape
    error = np.mean(np.square(values.astype(np.float64) - expected))
    return float(error / max(np.mean(np.square(expected.astype(np.float64))), 1e-30))
