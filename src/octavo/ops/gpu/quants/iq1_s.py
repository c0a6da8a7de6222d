"""iq1_s: 8 groups of 32 weights; points of eight of -1, 0, 1, and a shift for the group."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import (
    halves,
    load_bytes,
    load_half,
    load_pairs,
    points_of_eight,
)
from octavo.quants._grids import grid

VEC = 8


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 50, SPANS)
    low = load_bytes(places + 2 + half * 16, 16).to(tl.int32)
    words = (places + 34 + half * 8).to(tl.pointer_type(tl.uint16))[:, :, None]
    p = tl.arange(0, 16)[None, None, :]
    word = tl.load(words + p // 4).to(tl.int32)
    point = points_of_eight(table, low | (((word >> (p % 4 * 3)) & 7) << 8))
    q = point * 8 + (1 - (word >> 15) * 2).to(tl.float32)[:, :, :, None]
    level = ((load_pairs(places + 34 + half * 8, 4) >> 12) & 7).to(tl.float32)
    scale = load_half(places)[:, :, None] * (2 * level + 1) * 0.125
    return q.reshape(R, SPANS, 128), scale, 0.0


def codebook() -> NDArray[np.int8]:
    """The points, eight numbers each."""
    return grid("iq1_s").reshape(-1)
