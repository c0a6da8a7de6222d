"""q4_0: a half-precision scale and 32 4-bit numbers, less 8."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_bytes, load_half, nibbles, scaled, small_blocks


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 18, SPANS)
    q = nibbles(load_bytes(places + 2, 16), 16).to(tl.int16) - 8
    return scaled(q, load_half(places)[:, :, None])
