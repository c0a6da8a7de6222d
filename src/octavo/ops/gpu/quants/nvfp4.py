"""nvfp4: 4 groups of 16 4-bit floats (E2M1), each with an unsigned 8-bit float (E4M3)."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import doubled_e2m1, load_bytes, nibbles, small_blocks

VEC, RUN = 4, 8


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 2, 36, SPANS)
    doubled = doubled_e2m1(nibbles(load_bytes(places + 4, 32), 8))
    # Half of s: its exponent has a bias of 7; that of float32, 127. The top bit says nothing.
    s = load_bytes(places, 4).to(tl.int32)
    exponent, mantissa = (s >> 3) & 15, s & 7
    normal = (((exponent + 119) << 23) | (mantissa << 20)).to(tl.float32, bitcast=True)
    scale = tl.where(exponent == 0, mantissa.to(tl.float32) * 0.0009765625, normal)
    return doubled, tl.where(s == 0x7F, 0.0, scale), 0.0
