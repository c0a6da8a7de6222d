"""q8_0: a half-precision scale and 32 int8."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_bytes, load_half, scaled, small_blocks


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 34, SPANS)
    q = load_bytes(places + 2, 32).to(tl.int8, bitcast=True)
    return scaled(q, load_half(places)[:, :, None])
