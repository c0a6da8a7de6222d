"""q4_k: 8 groups of 32 4-bit numbers, each with a 6-bit scale and offset."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    halves,
    interleave,
    load_bytes,
    load_half,
    load_words,
    word_bytes,
)

VEC, RUN, HAS_OFFSET = 4, 32, True


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 144, SPANS)
    word = load_words(places + 16 + half * 64, 16)
    low, high = word & 0x0F0F0F0F, (word >> 4) & 0x0F0F0F0F
    scale, offset = levels(places, half)
    return interleave(word_bytes(low, 0), word_bytes(high, 0), 32), scale, offset


@triton.jit
def levels(places, half):
    """Scales and offsets of the four groups of each span: (R, S, 4) float32 each."""
    s = load_bytes(places + 4, 4)
    m = load_bytes(places + 8, 4)
    low = load_bytes(places + 12, 4)
    is_upper = half[:, :, None] == 1
    s = tl.where(is_upper, (low & 15) | ((s >> 2) & 0x30), s & 63)
    m = tl.where(is_upper, (low >> 4) | ((m >> 2) & 0x30), m & 63)
    d = load_half(places)[:, :, None]
    dmin = load_half(places + 2)[:, :, None]
    return d * s.to(tl.float32), -(dmin * m.to(tl.float32))
