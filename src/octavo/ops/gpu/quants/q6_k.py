"""q6_k: 16 groups of 16 6-bit numbers, less 32, each with an int8 scale."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    halves,
    interleave,
    load_bytes,
    load_half,
    load_pairs,
    pair_bytes,
)

VEC, RUN = 2, 64


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places, half = halves(rows, n_blocks, first, 210, SPANS)
    word = load_pairs(places + half * 64, 32)
    # Of 32 bytes with high bits, bits 0 and 1 are for the first 32 weights of the span, and so on.
    i = tl.arange(0, 32)
    words = (places + 128 + half * 32).to(tl.pointer_type(tl.uint16))[:, :, None]
    bits = tl.load(words + (i % 16)[None, None, :]).to(tl.int32) >> (i // 16 * 2)[None, None, :]
    low = (word & 0x0F0F) | ((bits & 0x0303) << 4)
    high = ((word >> 4) & 0x0F0F) | (bits & 0x3030)
    s = load_bytes(places + 192 + half * 8, 8).to(tl.int8, bitcast=True).to(tl.float32)
    q = interleave(pair_bytes(low, 32), pair_bytes(high, 32), 64)
    return q, load_half(places + 208)[:, :, None] * s, 0.0
