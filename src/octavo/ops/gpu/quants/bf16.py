"""bf16: the upper halves of single-precision numbers."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_floats

VEC = 4


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    k = first * 128 + tl.max_contiguous(tl.arange(0, SPANS * 128), 4)
    places = rows.to(tl.pointer_type(tl.uint16))[:, None] + k[None, :]
    upper = load_floats(places, k, n_blocks).to(tl.uint32)
    q = (upper << 16).to(tl.float32, bitcast=True)
    return q[:, None, :], tl.full([1, 1, 1], 1.0, tl.float32), 0.0
