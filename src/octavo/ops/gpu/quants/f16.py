"""f16: half-precision numbers."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_floats

VEC = 4


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    k = first * 128 + tl.max_contiguous(tl.arange(0, SPANS * 128), 4)
    places = rows.to(tl.pointer_type(tl.float16))[:, None] + k[None, :]
    q = load_floats(places, k, n_blocks).to(tl.float32)
    return q[:, None, :], tl.full([1, 1, 1], 1.0, tl.float32), 0.0
