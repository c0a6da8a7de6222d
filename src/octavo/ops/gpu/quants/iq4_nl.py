"""iq4_nl: a half-precision scale and 32 numbers of values in a table."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import load_bytes, load_half, nibbles, small_blocks
from octavo.quants.iq4_nl import TABLE

VEC, RUN = 2, 16


@triton.jit
def parts(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 18, SPANS)
    q = tl.load(table + nibbles(load_bytes(places + 2, 16), 16))
    return q.to(tl.float32), load_half(places)[:, :, None], 0.0


def codebook() -> NDArray[np.float32]:
    """The 16 values."""
    return TABLE.astype(np.float32)
