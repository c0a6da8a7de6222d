"""iq3_s: 8 groups of 32 weights; points of four, each weight with a sign."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import halves, load_bytes, load_half
from octavo.quants._grids import grid

VEC = 1


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 110, SPANS)
    p = tl.arange(0, 32)[None, None, :]
    ninth = tl.load((places + 66 + half * 4)[:, :, None] + p // 8) >> (p % 8).to(tl.uint8)
    number = load_bytes(places + 2 + half * 32, 32).to(tl.int32) | ((ninth & 1).to(tl.int32) << 8)
    point = tl.load(table + number)  # four magnitudes, a byte each
    signs = tl.load((places + 74 + half * 16)[:, :, None] + p // 2).to(tl.int32) >> (p % 2 * 4)
    i = tl.arange(0, 4)[None, None, None, :]
    q = (point[:, :, :, None] >> (8 * i)) & 255
    q = tl.where(((signs[:, :, :, None] >> i) & 1) == 1, -q, q).reshape(R, SPANS, 128)
    g = tl.arange(0, 4)[None, None, :]
    s = tl.load((places + 106 + half * 2)[:, :, None] + g // 2) >> (g % 2 * 4).to(tl.uint8)
    return q.to(tl.float32), load_half(places)[:, :, None] * ((s & 15) * 2 + 1).to(tl.float32), 0.0


def codebook() -> NDArray[np.int32]:
    """The points, four bytes each."""
    return grid("iq3_s").view(np.int32).reshape(-1)
