"""bf16: the upper halves of single-precision numbers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    k = first * 128 + tl.arange(0, SPANS * 128)
    places = rows.to(tl.pointer_type(tl.uint16))[:, None] + k[None, :]
    upper = tl.load(places, mask=(k < n_blocks)[None, :], other=0).to(tl.uint32)
    return (upper << 16).to(tl.float32, bitcast=True)
