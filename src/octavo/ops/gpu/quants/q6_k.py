"""q6_k: 16 groups of 16 6-bit numbers, less 32, each with an int8 scale."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import halves, load_bytes, load_half, nibbles, scaled


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 210, SPANS)
    q = nibbles(load_bytes(places + half * 64, 64), 64)
    # Of 32 bytes with high bits, bits 0 and 1 are for the first 32 weights of the span, and so on.
    i = tl.arange(0, 64)[None, None, :]
    high = tl.load((places + 128 + half * 32)[:, :, None] + i % 32) >> (i // 32 * 2).to(tl.uint8)
    high = tl.join((high & 3) << 4, high & 0x30).permute(0, 1, 3, 2)
    q = (q | high.reshape(R, SPANS, 128)).to(tl.int8, bitcast=True) - 32
    s = load_bytes(places + 192 + half * 8, 8).to(tl.int8, bitcast=True)
    return scaled(q, load_half(places + 208)[:, :, None] * s.to(tl.float32))
