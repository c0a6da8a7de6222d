"""q3_k: 16 groups of 16 3-bit numbers, less 4, each with a 6-bit scale, less 32."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_bytes, load_half

VEC = 2


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 110, SPANS)
    j = tl.arange(0, 4)[None, None, :, None]
    low = load_bytes(places + 32 + half * 32, 32)[:, :, None, :] >> (2 * j).to(tl.uint8)
    third = load_bytes(places, 32)[:, :, None, :] >> (half[:, :, None, None] * 4 + j).to(tl.uint8)
    q = (low & 3) | ((third & 1) << 2)
    q = q.reshape(R, SPANS, 128).to(tl.int8, bitcast=True) - 4
    # 4 low bits of the scales: those of the first span in low halves; then four times 2 high bits.
    g = tl.arange(0, 8)[None, None, :]
    s = (load_bytes(places + 96, 8) >> (half[:, :, None] * 4).to(tl.uint8)) & 15
    high = tl.load((places + 104)[:, :, None] + g % 4) >> (half[:, :, None] * 4 + g // 4 * 2)
    s = (s | ((high & 3) << 4)).to(tl.float32) - 32
    return q.to(tl.float32), load_half(places + 108)[:, :, None] * s, 0.0
