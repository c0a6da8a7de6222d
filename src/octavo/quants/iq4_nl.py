"""iq4_nl: 32 weights; half-precision d, then 16 bytes as in q4_0. w = d * TABLE[q].

The table is denser around zero, as weights are.
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
    to_half,
)
from octavo.quants._scales import columns, nearest_codes, refit, table_scale

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

# fmt: off
TABLE = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
# fmt: on
_RANDOM_RMS = rms(TABLE)


def integer_form(data: Bytes) -> IntegerForm:
    q = TABLE.astype(np.int16)[split_bits(data[:, 2:], 16, 4)]
    return IntegerForm(q, read_half(data, 0), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d = to_half(table_scale(columns(values, 32), TABLE)[:, None])
    codes = nearest_codes(2 * values * ratio(1, d), TABLE)
    d = refit(values, TABLE.astype(np.float32)[codes], d)
    return np.concatenate([half_bytes(d), join_bits(codes, 16, 4)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
