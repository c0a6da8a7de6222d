"""q5_0: 32 weights; half-precision d, 32 fifth bits, 16 bytes as in q4_0. w = d * (q - 16).

Bit i of the four little-endian bytes of fifth bits belongs to weight i.
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

_RANDOM_RMS = rms(range(-16, 16))


def integer_form(data: Bytes) -> IntegerForm:
    q = read_five_bits(data[:, 2:]).astype(np.int16) - np.int16(16)
    return IntegerForm(q, read_half(data, 0), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    """The peak takes -16, as in ggml."""
    d = signed_peak(values, 1) / np.float32(-16)
    q = np.clip(np.trunc(values * ratio(1, d) + np.float32(16.5)), 0, 31).astype(np.uint8)
    return np.concatenate([half_bytes(d), five_bits(q)], axis=1)


def read_five_bits(data: Bytes) -> Bytes:
    """(n, 20) bytes, the fifth bits first -> (n, 32) numbers 0..31."""
    return split_bits(data[:, 4:], 16, 4) | split_bits(data[:, :4], 1, 1) << np.uint8(4)


def five_bits(q: Bytes) -> Bytes:
    """The inverse of `read_five_bits`."""
    low = join_bits(q & np.uint8(15), 16, 4)
    return np.concatenate([join_bits(q >> np.uint8(4), 1, 1), low], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
