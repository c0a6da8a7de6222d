"""iq4_nl: a half-precision scale and 32 numbers of values in a table."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo.ops.gpu.quants._fields import load_bytes, load_half, nibbles, scaled, small_blocks
from octavo.quants.iq4_nl import TABLE


@triton.jit
def span(rows, table, n_blocks, first, SPANS: tl.constexpr):
    places = small_blocks(rows, n_blocks, first, 4, 18, SPANS)
    q = tl.load(table + nibbles(load_bytes(places + 2, 16), 16))
    return scaled(q, load_half(places)[:, :, None])


def codebook() -> NDArray[np.float32]:
    """The 16 values."""
    return TABLE.astype(np.float32)
