"""q4_0: a half-precision scale and 32 4-bit numbers, less 8."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_bytes, load_half, nibbles, small_blocks

VEC, RUN = 2, 16


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 18, SPANS)
    q = nibbles(load_bytes(places + 2, 16), 16).to(tl.int16) - 8
    return q.to(tl.float32), load_half(places)[:, :, None], 0.0
