"""q5_k: 8 groups of 32 5-bit numbers, each with a 6-bit scale and offset as in q4_k."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    halves,
    interleave,
    load_words,
    word_bytes,
)
from octavo.ops.gpu.quants.q4_k import levels

VEC, RUN, HAS_OFFSET = 4, 32, True


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 176, SPANS)
    word = load_words(places + 48 + half * 64, 16)
    low, high = word & 0x0F0F0F0F, (word >> 4) & 0x0F0F0F0F
    # Of each byte of fifth bits, bit b is for group b; both chunks of a span read the same bytes.
    i = tl.max_contiguous(tl.arange(0, 16), 1)
    words = (places + 16).to(tl.pointer_type(tl.int32))[:, :, None] + (i % 8)[None, None, :]
    fifth = tl.load(words) >> (half[:, :, None] * 4 + (i // 8 * 2)[None, None, :])
    low, high = low | ((fifth & 0x01010101) << 4), high | ((fifth & 0x02020202) << 3)
    scale, offset = levels(places, half)
    return interleave(word_bytes(low, 0), word_bytes(high, 0), 32), scale, offset
