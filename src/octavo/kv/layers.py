"""The storage of one layer's cache: bytes with a format, in the memory of one back end.

The arrays are what `backend.alloc` gives: NumPy's, or tensors on a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from octavo.kv.state import AttentionSpec, RecurrentSpec
from octavo.record import dataclass

if TYPE_CHECKING:  # ops imports this module
    from octavo.ops.backend import Backend


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """Pages of keys and values of one layer, shared by all sequences.

    `data` is uint8 (pages, page bytes): first all key heads, then all value heads, each head laid
    out by the format (`kv/formats/<format>.py`). `spec` says the shapes.
    """

    spec: AttentionSpec
    format: str
    data: NDArray[np.uint8]
    backend: Backend


@dataclass(frozen=True, eq=False)
class RecurrentLayer:
    """Recurrent states of one layer: a slot is one sequence's state, or a snapshot of it."""

    spec: RecurrentSpec
    conv: NDArray[np.float32]  # (slots, kernel - 1, channels)
    state: NDArray[np.float32]  # (slots, value heads, key dim, value dim)
    backend: Backend


CacheLayer = AttentionLayer | RecurrentLayer
