"""tq1_0: digits of base 3, less 1, five in a byte (four in each of the last four); one scale."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_half

VEC = 1


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 54, SPANS)
    k = half[:, :, None] * 128 + tl.arange(0, 128)[None, None, :]
    # First 32 bytes with the first digits of all, then the second; likewise 16 bytes, and 4.
    byte = tl.where(k < 160, k % 32, tl.where(k < 240, 32 + k % 16, 48 + k % 4))
    digit = tl.where(k < 160, k // 32, tl.where(k < 240, (k - 160) // 16, (k - 240) // 4))
    power = tl.where(digit == 0, 1, tl.where(digit == 1, 3, tl.where(digit == 2, 9, 27)))
    power = tl.where(digit == 4, 81, power)
    rest = (tl.load(places[:, :, None] + byte).to(tl.int32) * power) & 255
    q = ((rest * 3) >> 8) - 1
    return q.to(tl.float32), load_half(places + 52)[:, :, None], 0.0
