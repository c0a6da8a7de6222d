"""iq4_xs: 8 groups of 32 numbers of values in a table, each with a 6-bit scale, less 32."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_bytes, load_half, nibbles
from octavo.ops.gpu.quants.iq4_nl import values

VEC, RUN = 4, 16


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 136, SPANS)
    q = values(nibbles(load_bytes(places + 8 + half * 64, 64), 16))
    g = tl.arange(0, 4)[None, None, :]
    low = tl.load((places + 4 + half * 2)[:, :, None] + g // 2) >> (g % 2 * 4).to(tl.uint8)
    high = tl.load((places + 2 + half)[:, :, None] + g // 4) >> (g * 2).to(tl.uint8)
    s = ((low & 15) | ((high & 3) << 4)).to(tl.float32) - 32
    return q, load_half(places)[:, :, None] * s, 0.0
