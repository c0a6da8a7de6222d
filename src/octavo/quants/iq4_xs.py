"""iq4_xs: 256 weights in 8 groups of 32. w = d * (s - 32) * TABLE[q], the table of iq4_nl.

Bytes: half-precision d, 2 of the high two bits of the 8 s, 4 of their low four bits (low half
first), 128 of q: 16 for each group, low halves first.
"""

from __future__ import annotations

import numpy as np

from octavo.quants._blocks import (
    Bytes,
    Floats,
    IntegerForm,
    expand,
    half_bytes,
    identity,
    join_bits,
    random_bytes,
    random_scale,
    ratio,
    read_half,
    rms,
    split_bits,
)
from octavo.quants._scales import columns, nearest_codes, refit, shared_scale, table_scale
from octavo.quants.iq4_nl import TABLE

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_RANDOM_RMS = rms(range(-32, 32)) * rms(TABLE)


def integer_form(data: Bytes) -> IntegerForm:
    high = split_bits(data[:, 2:4], 1, 2) << np.uint8(4)
    s = (split_bits(data[:, 4:8], 1, 4) | high).astype(np.float32) - np.float32(32)
    q = TABLE.astype(np.int16)[split_bits(data[:, 8:], 16, 4)]
    return IntegerForm(q, read_half(data, 0) * s, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    n_blocks = len(values)
    scales = table_scale(columns(values, 32), TABLE).reshape(n_blocks, -1)
    d, levels = shared_scale(scales, -32, 31)
    inverse = ratio(1, d * levels).repeat(32, axis=1)
    codes = nearest_codes(2 * values * inverse, TABLE)
    d = refit(values, levels.repeat(32, axis=1) * TABLE.astype(np.float32)[codes], d)
    s = (levels + 32).astype(np.uint8)
    high, low = join_bits(s >> np.uint8(4), 1, 2), join_bits(s & np.uint8(15), 1, 4)
    return np.concatenate([half_bytes(d), high, low, join_bits(codes, 16, 4)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
