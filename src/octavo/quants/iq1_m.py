"""iq1_m: 256 weights in 16 groups of 16. w = d * (2 s + 1) * (point + shift), s in 0..7.

As iq1_s, with a shift for each point. Bytes: 32 of the low 8 bits of the points' numbers (8 weights
each), 16 of halves, low first: three high bits and the sign of the shift; four 16-bit words, each
with four s, lowest first, and four bits of the half-precision d on top, lowest word first.
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
    rms,
    split_bits,
)
from octavo.quants._codebook import codebook, fit_codebook
from octavo.quants._grids import grid

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 16

_RANDOM_RMS = rms(2 * np.arange(8) + 1) * rms(
    np.stack([grid("iq1_s") + 1 / 8, grid("iq1_s") - 1 / 8])
)
_THREES = np.array([0, 3, 6, 9], np.uint16)
_FOURS = np.array([0, 4, 8, 12], np.uint16)


def integer_form(data: Bytes) -> IntegerForm:
    halves = split_bits(data[:, 32:48], 1, 4)
    point = data[:, :32] | (halves & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    shift = np.where(halves >> np.uint8(3), np.int16(-1), np.int16(1))
    q = 8 * grid("iq1_s")[point].astype(np.int16) + shift[..., None]  # (n, 32, 8)
    words = data[:, 48:].view("<u2")  # (n, 4)
    d_bits = np.bitwise_or.reduce(words >> np.uint16(12) << _FOURS, axis=1)
    d = d_bits.view(np.float16).astype(np.float32)[:, None]
    level = (words[..., None] >> _THREES & np.uint16(7)).reshape(len(data), 16).astype(np.float32)
    return IntegerForm(q.reshape(len(data), -1), d * (2 * level + 1) / np.float32(8), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    n_blocks = len(values)
    books = (codebook("iq1_s", 1 / 8), codebook("iq1_s", -1 / 8))
    fit = fit_codebook(values.reshape(n_blocks, 16, 2, 8), books, 1, 7)
    halves = (fit.point >> np.uint16(8)).astype(np.uint8) | fit.book << np.uint8(3)
    levels = fit.level.astype(np.uint16).reshape(n_blocks, 4, 4) << _THREES
    data = np.zeros((n_blocks, block_bytes), np.uint8)
    data[:, :32] = fit.point.astype(np.uint8)
    data[:, 32:48] = join_bits(halves, 1, 4)
    data[:, 48:] = np.bitwise_or.reduce(levels, axis=2).astype("<u2").view(np.uint8)
    _write_d(data, fit.d)
    return data


def _write_d(data: Bytes, d: Floats) -> None:
    """Put d (n, 1) into the top bits of the last four words."""
    bits = half_bytes(d).view("<u2")  # (n, 1)
    words = data[:, 48:].view("<u2")
    words &= np.uint16(0x0FFF)
    words |= bits >> _FOURS << np.uint16(12)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    _write_d(data, random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
