"""iq3_xxs: 8 groups of 32 weights; points of four, numbers of eight signs."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import (
    halves,
    load_bytes,
    load_half,
    load_word,
    odd_parity,
)
from octavo.quants._grids import grid

VEC = 1


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 98, SPANS)
    point = tl.load(table + load_bytes(places + 2 + half * 32, 32))  # four magnitudes, a byte each
    eighth = tl.arange(0, 16)[None, None, :]  # of a span: 8 weights share a number of signs
    word = load_word((places + 66 + half * 16)[:, :, None] + eighth // 4 * 4)
    number = (word >> (eighth % 4 * 7)) & 127
    signs = number | (odd_parity(number) << 7)
    i = tl.arange(0, 4)[None, None, None, :]
    q = ((point[:, :, :, None] >> (8 * i)) & 255).reshape(R, SPANS, 16, 8)
    is_negative = (signs[:, :, :, None] >> tl.arange(0, 8)[None, None, None, :]) & 1
    q = tl.where(is_negative == 1, -q, q).reshape(R, SPANS, 128)
    words = load_word((places + 66 + half * 16)[:, :, None] + tl.arange(0, 4)[None, None, :] * 4)
    s = ((words >> 28) & 15).to(tl.float32)
    return q.to(tl.float32), load_half(places)[:, :, None] * (2 * s + 1) / 4, 0.0


def codebook() -> NDArray[np.int32]:
    """The points, four bytes each."""
    return grid("iq3_xxs").view(np.int32).reshape(-1)
