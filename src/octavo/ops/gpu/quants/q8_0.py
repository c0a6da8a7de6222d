"""q8_0: a half-precision scale and 32 int8."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    load_half,
    load_pairs,
    pair_bytes,
    small_blocks,
)

VEC = 2


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 34, SPANS)
    q = pair_bytes(load_pairs(places + 2, 16) ^ 0x8080, 128)
    return q, load_half(places)[:, :, None], 0.0
