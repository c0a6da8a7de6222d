"""iq2_s: 16 groups of 16 weights; points of eight, each weight with a sign."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import (
    halves,
    load_bytes,
    load_half,
    load_nibbles,
    signed_points,
)
from octavo.quants._grids import grid

VEC = 8


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 82, SPANS)
    low = load_bytes(places + 2 + half * 16, 16).to(tl.int32)
    signs = load_bytes(places + 34 + half * 16, 16).to(tl.int32)
    p = tl.arange(0, 16)[None, None, :]
    high = tl.load((places + 66 + half * 4)[:, :, None] + p // 4).to(tl.int32) >> (p % 4 * 2)
    q = signed_points(table, low | ((high & 3) << 8), signs, SPANS)
    level = load_nibbles(places + 74 + half * 4, 8).to(tl.float32)
    return q, load_half(places)[:, :, None] * (2 * level + 1) * 0.125, 0.0


def codebook() -> NDArray[np.int8]:
    """The points, eight magnitudes each."""
    return grid("iq2_s").reshape(-1)
