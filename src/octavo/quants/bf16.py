"""bf16: the upper half of a single-precision number."""

from __future__ import annotations

import numpy as np

from octavo.quants._blocks import Bytes, Floats, identity
from octavo.quants.f32 import uniform

name, ggml_id, block_elements, block_bytes = identity(__name__)

_INFINITY_BITS = np.uint32(0x7F800000)
_QUIET_NAN_BIT = np.uint32(0x00400000)


def unpack(data: Bytes) -> Floats:
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def pack(values: Floats) -> Bytes:
    """Rounds to nearest, ties to even; a NaN stays one and keeps its upper bits."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > _INFINITY_BITS
    upper = np.where(is_nan, bits | _QUIET_NAN_BIT, rounded) >> np.uint32(16)
    return upper.astype("<u2").view(np.uint8)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    return uniform(n_blocks, rng, std).view(np.uint8)[:, 2:]  # cut off, not rounded
