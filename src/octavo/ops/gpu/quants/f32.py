"""f32: single-precision numbers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    k = first * 128 + tl.arange(0, SPANS * 128)
    places = rows.to(tl.pointer_type(tl.float32))[:, None] + k[None, :]
    return tl.load(places, mask=(k < n_blocks)[None, :], other=0.0)
