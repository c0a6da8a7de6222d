"""q2_k: 16 groups of 16 2-bit numbers, each with a 4-bit scale and offset."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_bytes, load_half

VEC, HAS_OFFSET = 4, True


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 84, SPANS)
    j = tl.arange(0, 4)[None, None, :, None]
    q = load_bytes(places + 16 + half * 32, 32)[:, :, None, :] >> (2 * j).to(tl.uint8)
    q = (q & 3).reshape(R, SPANS, 128)
    levels = load_bytes(places + half * 8, 8)
    scale = load_half(places + 80)[:, :, None] * (levels & 15).to(tl.float32)
    offset = load_half(places + 82)[:, :, None] * (levels >> 4).to(tl.float32)
    return q.to(tl.float32), scale, -offset
