"""q5_0: a half-precision scale and 32 5-bit numbers, less 16."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import (
    load_bytes,
    load_half,
    load_word,
    nibbles,
    small_blocks,
)

VEC, RUN = 2, 16


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 22, SPANS)
    fifth = (load_word(places + 2)[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    q = nibbles(load_bytes(places + 6, 16), 16).to(tl.int32) + fifth * 16 - 16
    return q.to(tl.float32), load_half(places)[:, :, None], 0.0
