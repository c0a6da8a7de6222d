"""iq2_xxs: 8 groups of 32 weights; points of eight, numbers of eight signs."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import (
    halves,
    load_half,
    load_word,
    odd_parity,
    signed_points,
)
from octavo.quants._grids import grid

VEC = 8


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 66, SPANS)
    groups = (places + 2 + half * 32)[:, :, None]  # of 8 bytes: four points, and a word
    p = tl.arange(0, 16)[None, None, :]
    point = tl.load(groups + p // 4 * 8 + p % 4).to(tl.int32)
    number = (load_word(groups + p // 4 * 8 + 4) >> (p % 4 * 7)) & 127
    q = signed_points(table, point, number | (odd_parity(number) << 7), SPANS)
    g = tl.arange(0, 4)[None, None, :]
    level = ((load_word(groups + g * 8 + 4) >> 28) & 15).to(tl.float32)
    return q, load_half(places)[:, :, None] * (2 * level + 1) * 0.125, 0.0


def codebook() -> NDArray[np.int8]:
    """The points, eight magnitudes each."""
    return grid("iq2_xxs").reshape(-1)
