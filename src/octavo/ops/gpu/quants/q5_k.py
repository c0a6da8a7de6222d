"""q5_k: 8 groups of 32 5-bit numbers, each with a 6-bit scale and offset as in q4_k."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_bytes, nibbles, scaled_offset
from octavo.ops.gpu.quants.q4_k import levels


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 176, SPANS)
    q = nibbles(load_bytes(places + 48 + half * 64, 64), 32)
    # Of each byte of fifth bits, bit b is for group b; both chunks of a span read the same bytes.
    i = tl.arange(0, 64)[None, None, :]
    fifth = tl.load((places + 16)[:, :, None] + i % 32) >> (half[:, :, None] * 4 + i // 32 * 2)
    fifth = tl.join((fifth & 1) << 4, (fifth & 2) << 3).reshape(R, SPANS, 2, 32, 2)
    q = q | fifth.permute(0, 1, 2, 4, 3).reshape(R, SPANS, 128).to(tl.uint8)
    scale, offset = levels(places, half)
    return scaled_offset(q, scale, offset)
