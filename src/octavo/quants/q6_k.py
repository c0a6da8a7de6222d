"""q6_k: 256 weights in 16 groups of 16. w = d * s * (q - 32), q in 0..63, s int8.

Bytes: 128 of the low four bits of q, 64 of the high two, 16 of s, half-precision d. Each 64 bytes
of low bits are 128 weights, low halves first; each 32 bytes of high bits belong to the same 128,
lowest two bits first.
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

_RANDOM_RMS = rms(range(-128, 128)) * rms(range(-32, 32))
_NUDGES = (-0.6, -0.2, 0.2, 0.6)


def integer_form(data: Bytes) -> IntegerForm:
    q = split_bits(data[:, :128], 64, 4) | split_bits(data[:, 128:192], 32, 2) << np.uint8(4)
    s = data[:, 192:208].view(np.int8)
    return IntegerForm(q.astype(np.int16) - np.int16(32), read_half(data, 208) * s, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, s, q = fit_signed_scale(values, 16, (-32, 31), (-128, 127), _NUDGES)
    low, high = join_bits(q & np.uint8(15), 64, 4), join_bits(q >> np.uint8(4), 32, 2)
    return np.concatenate([low, high, s.astype(np.int8).view(np.uint8), half_bytes(d)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, 208:210] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
