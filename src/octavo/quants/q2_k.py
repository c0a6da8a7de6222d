"""q2_k: 256 weights in 16 groups of 16. w = d * s * q - dmin * m, q in 0..3.

Bytes: 16 of s (low half) and m (high half), 64 of q, half-precision d and dmin. Each 32 bytes of
q are 128 weights: the lowest two bits of all are the first 32, and so on.
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
from octavo.quants._scales import fit_low_and_scale

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 16

_RANDOM_RMS = rms(np.multiply.outer(range(16), range(4))[..., None] - 1.5 * np.arange(16))
_NUDGES = (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8)


def integer_form(data: Bytes) -> IntegerForm:
    s, m = data[:, :16] & np.uint8(15), data[:, :16] >> np.uint8(4)
    q = split_bits(data[:, 16:80], 32, 2).astype(np.int16)
    return IntegerForm(q, read_half(data, 80) * s, -(read_half(data, 82) * m))


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, s, dmin, m, q = fit_low_and_scale(values, 16, 3, 15, _NUDGES)
    levels = s | m << np.uint8(4)
    return np.concatenate([levels, join_bits(q, 32, 2), half_bytes(d), half_bytes(dmin)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    d = random_scale(n_blocks, rng, std / _RANDOM_RMS)
    data[:, 80:82] = half_bytes(d)
    data[:, 82:] = half_bytes(d * np.float32(1.5))
    return data
