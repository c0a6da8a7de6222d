"""mxfp4: an exponent and 32 4-bit floats (E2M1)."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import load_bytes, nibbles, small_blocks

VEC, RUN = 1, 16


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 17, SPANS)
    q = nibbles(load_bytes(places + 1, 16), 16).to(tl.int32)
    # Exponent and mantissa moved to their places in a float32 make a number 2^-126 times as large;
    # the values are taken doubled, so the scale is 2^(e - 128), below the normal range for e < 2.
    tiny = ((q & 7) << 22) | ((q & 8) << 28)
    doubled = tiny.to(tl.float32, bitcast=True) * 1.7014118346046923e38
    e = tl.load(places).to(tl.int32)
    scale = tl.where(e < 2, 0x00200000 << e, (e - 1) << 23).to(tl.float32, bitcast=True)
    return doubled, scale[:, :, None], 0.0
