"""q4_1: half-precision scale and offset, 32 4-bit numbers."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    load_bytes,
    load_half,
    nibbles,
    small_blocks,
)

VEC, RUN, HAS_OFFSET = 4, 16, True


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 20, SPANS)
    q = nibbles(load_bytes(places + 4, 16), 16)
    return q.to(tl.float32), load_half(places)[:, :, None], load_half(places + 2)[:, :, None]
