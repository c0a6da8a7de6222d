"""tq2_0: 2-bit numbers, less 1, and one scale."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_bytes, load_half

VEC = 2


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 66, SPANS)
    j = tl.arange(0, 4)[None, None, :, None]
    q = load_bytes(places + half * 32, 32)[:, :, None, :] >> (2 * j).to(tl.uint8)
    q = (q & 3).reshape(R, SPANS, 128).to(tl.int16) - 1
    return q.to(tl.float32), load_half(places + 64)[:, :, None], 0.0
