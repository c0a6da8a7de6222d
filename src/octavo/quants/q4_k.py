"""q4_k: 256 weights in 8 groups of 32. w = d * s * q - dmin * m, q in 0..15, s and m in 0..63.

Bytes: half-precision d and dmin, 12 of s and m, 128 of q: each 32 bytes are 64 weights, low halves
first. Of the 12, the low six bits of 0..3 are s 0..3, of 4..7 are m 0..3; bytes 8..11 hold the low
four bits of s 4..7 (low half) and m 4..7, whose high two are the high bits of bytes 0..3 and 4..7.
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
group_elements = 32

_NUDGES = (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8)


def integer_form(data: Bytes) -> IntegerForm:
    s, m = read_levels(data[:, 4:16])
    q = split_bits(data[:, 16:], 32, 4).astype(np.int16)
    return IntegerForm(q, read_half(data, 0) * s, -(read_half(data, 2) * m))


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, s, dmin, m, q = fit_low_and_scale(values, 32, 15, 63, _NUDGES)
    fields = [half_bytes(d), half_bytes(dmin), level_bytes(s, m), join_bits(q, 32, 4)]
    return np.concatenate(fields, axis=1)


def read_levels(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 12 bytes of s and m -> s (n, 8) and m (n, 8)."""
    first, second, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    s_high = low & np.uint8(15) | first >> np.uint8(2) & np.uint8(0x30)
    m_high = low >> np.uint8(4) | second >> np.uint8(2) & np.uint8(0x30)
    s = np.concatenate([first & np.uint8(63), s_high], axis=1)
    return s, np.concatenate([second & np.uint8(63), m_high], axis=1)


def level_bytes(s: Bytes, m: Bytes) -> Bytes:
    """The inverse of `read_levels`."""
    first = s[:, :4] | s[:, 4:] >> np.uint8(4) << np.uint8(6)
    second = m[:, :4] | m[:, 4:] >> np.uint8(4) << np.uint8(6)
    low = s[:, 4:] & np.uint8(15) | m[:, 4:] << np.uint8(4)
    return np.concatenate([first, second, low], axis=1)


def random_rms(top: int) -> float:
    """Of weights with d = 1, dmin = top / 2, q in 0..top, and s and m in 32..63."""
    s_times_q = rms(range(32, 64)) * rms(np.arange(top + 1) - top / 2)
    return float(np.hypot(s_times_q, top / 2 * rms(np.subtract.outer(range(32), range(32)))))


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    d = random_scale(n_blocks, rng, std / random_rms(15))
    data[:, :2] = half_bytes(d)
    data[:, 2:4] = half_bytes(d * np.float32(15 / 2))
    data[:, 4:12] |= np.uint8(0xA0)  # the top bit of every s and m
    return data
