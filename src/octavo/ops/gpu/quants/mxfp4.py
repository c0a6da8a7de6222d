"""mxfp4: an exponent and 32 4-bit floats (E2M1)."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.quants._fields import doubled_e2m1, load_bytes, nibbles, small_blocks

VEC, RUN = 1, 16


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 17, SPANS)
    doubled = doubled_e2m1(nibbles(load_bytes(places + 1, 16), 16))
    # The values are taken doubled, so the scale is 2^(e - 128): below the normal range for e < 2.
    e = tl.load(places).to(tl.int32)
    scale = tl.where(e < 2, 0x00200000 << e, (e - 1) << 23).to(tl.float32, bitcast=True)
    return doubled, scale[:, :, None], 0.0
