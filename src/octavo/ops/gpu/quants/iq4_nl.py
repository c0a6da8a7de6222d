"""iq4_nl: a half-precision scale and 32 numbers of values in a table."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_bytes, load_half, nibbles, small_blocks
from octavo.quants.iq4_nl import TABLE

VEC, RUN = 2, 16
_WORDS = [
    int.from_bytes(TABLE[i : i + 4].astype(np.int8).tobytes(), "little") for i in (0, 4, 8, 12)
]
_W0, _W1, _W2, _W3 = (tl.constexpr(w - (w >> 31 << 32)) for w in _WORDS)


@triton.jit
def values(n):
    """The float32 of each number 0..15, from four words of four values each.

    To load them from a table gave wrong products on an H200 (Triton 3.6), where the same loads
    were right in `embed`.
    """
    n = n.to(tl.int32)
    low = tl.where(n < 4, _W0, _W1)
    high = tl.where(n < 12, _W2, _W3)
    word = tl.where(n < 8, low, high)
    return (word >> (n % 4 * 8) << 24 >> 24).to(tl.float32)


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 18, SPANS)
    q = values(nibbles(load_bytes(places + 2, 16), 16))
    return q, load_half(places)[:, :, None], 0.0
