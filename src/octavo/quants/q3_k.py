"""q3_k: 256 weights in 16 groups of 16. w = d * (s - 32) * (q - 4), q in 0..7, s in 0..63.

Bytes: 32 of the third bits of q, 64 of the lower two (as in q2_k), 12 of s, half-precision d.
Bit b of the third-bit bytes is for weights 32 b to 32 b + 31. Of the 16 s, the low four bits come
first (8 bytes: low halves 0..7, high halves 8..15), then the high two (4 bytes of four).
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
    rms,
    split_bits,
)
from octavo.quants._scales import fit_signed_scale

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 16

_RANDOM_RMS = rms(range(-32, 32)) * rms(range(-4, 4))
_NUDGES = (-0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8)


def integer_form(data: Bytes) -> IntegerForm:
    q = split_bits(data[:, 32:96], 32, 2) | split_bits(data[:, :32], 32, 1) << np.uint8(2)
    high = split_bits(data[:, 104:108], 4, 2) << np.uint8(4)
    s = (split_bits(data[:, 96:104], 8, 4) | high).astype(np.float32) - np.float32(32)
    return IntegerForm(q.astype(np.int16) - np.int16(4), read_half(data, 108) * s, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, levels, q = fit_signed_scale(values, 16, (-4, 3), (-32, 31), _NUDGES)
    s = (levels + 32).astype(np.uint8)
    fields = [
        join_bits(q >> np.uint8(2), 32, 1),
        join_bits(q & np.uint8(3), 32, 2),
        join_bits(s & np.uint8(15), 8, 4),
        join_bits(s >> np.uint8(4), 4, 2),
        half_bytes(d),
    ]
    return np.concatenate(fields, axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, 108:110] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
