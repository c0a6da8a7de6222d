"""iq1_m: 16 groups of 16 weights; points as in iq1_s, each with its shift."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    halves,
    load_bytes,
    load_nibbles,
    load_pairs,
    points_of_eight,
)
from octavo.ops.gpu.quants.iq1_s import codebook as codebook

VEC = 8


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    R: tl.constexpr = rows.shape[0]
    places, half = halves(rows, n_blocks, first, 56, SPANS)
    low = load_bytes(places + half * 16, 16).to(tl.int32)
    upper = load_nibbles(places + 32 + half * 8, 16)
    point = points_of_eight(table, low | ((upper & 7) << 8))
    q = point * 8 + (1 - (upper >> 3) * 2).to(tl.float32)[:, :, :, None]
    # The scale of the block stands in the top four bits of its last four words.
    i = tl.arange(0, 4)[None, None, :]
    d = tl.sum((load_pairs(places + 48, 4) >> 12) << (i * 4), 2)
    d = d.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    g = tl.arange(0, 8)[None, None, :]
    words = (places + 48 + half * 4).to(tl.pointer_type(tl.uint16))[:, :, None]
    level = ((tl.load(words + g // 4).to(tl.int32) >> (g % 4 * 3)) & 7).to(tl.float32)
    return q.reshape(R, SPANS, 128), d[:, :, None] * (2 * level + 1) * 0.125, 0.0
