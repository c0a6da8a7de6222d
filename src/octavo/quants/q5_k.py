"""q5_k: 256 weights in 8 groups of 32. w = d * s * q - dmin * m, q in 0..31, s and m in 0..63.

Bytes: half-precision d and dmin, 12 of s and m as in q4_k, 32 of the fifth bits of q (bit b is for
group b), 128 of the lower four as in q4_k.
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
    read_half,
    split_bits,
)
from octavo.quants._scales import fit_low_and_scale
from octavo.quants.q4_k import level_bytes, random_rms, read_levels

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_NUDGES = (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8)


def integer_form(data: Bytes) -> IntegerForm:
    s, m = read_levels(data[:, 4:16])
    q = split_bits(data[:, 48:], 32, 4) | split_bits(data[:, 16:48], 32, 1) << np.uint8(4)
    return IntegerForm(q.astype(np.int16), read_half(data, 0) * s, -(read_half(data, 2) * m))


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, s, dmin, m, q = fit_low_and_scale(values, 32, 31, 63, _NUDGES)
    fields = [
        half_bytes(d),
        half_bytes(dmin),
        level_bytes(s, m),
        join_bits(q >> np.uint8(4), 32, 1),
        join_bits(q & np.uint8(15), 32, 4),
    ]
    return np.concatenate(fields, axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    d = random_scale(n_blocks, rng, std / random_rms(31))
    data[:, :2] = half_bytes(d)
    data[:, 2:4] = half_bytes(d * np.float32(31 / 2))
    data[:, 4:12] |= np.uint8(0xA0)  # the top bit of every s and m
    return data
