"""iq2_xs: 16 groups of 16 weights; a word of 16 bits holds a point of eight and its signs."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import (
    halves,
    load_half,
    load_nibbles,
    load_pairs,
    odd_parity,
    signed_points,
)
from octavo.quants._grids import grid

VEC = 8


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 74, SPANS)
    word = load_pairs(places + 2 + half * 32, 16)
    number = word >> 9
    q = signed_points(table, word & 511, number | (odd_parity(number) << 7), SPANS)
    level = load_nibbles(places + 66 + half * 4, 8).to(tl.float32)
    return q, load_half(places)[:, :, None] * (2 * level + 1) * 0.125, 0.0


def codebook() -> NDArray[np.int8]:
    """The points, eight magnitudes each."""
    return grid("iq2_xs").reshape(-1)
