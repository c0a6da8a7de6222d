"""q4_0: 32 weights; half-precision d, then 16 bytes of two 4-bit numbers. w = d * (q - 8).

The low halves of the bytes are weights 0..15, the high halves 16..31.
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
from octavo.quants._scales import signed_peak

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_RANDOM_RMS = rms(range(-8, 8))


def integer_form(data: Bytes) -> IntegerForm:
    q = split_bits(data[:, 2:], 16, 4).astype(np.int16) - np.int16(8)
    return IntegerForm(q, read_half(data, 0), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    """The peak takes -8, which has no positive partner; the rest follows, as in ggml."""
    d = signed_peak(values, 1) / np.float32(-8)
    q = np.clip(np.trunc(values * ratio(1, d) + np.float32(8.5)), 0, 15).astype(np.uint8)
    return np.concatenate([half_bytes(d), join_bits(q, 16, 4)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
