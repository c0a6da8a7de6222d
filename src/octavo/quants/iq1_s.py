"""iq1_s: 256 weights in 8 groups of 32. w = d * (2 s + 1) * (point + shift), s in 0..7.

Points hold -1, 0 or 1; the shift is 1/8 or -1/8. In whole numbers: d / 8 * (2 s + 1) * (8 point +
8 shift). Bytes: half-precision d, 32 of the low 8 bits of the points' numbers (8 weights each),
then a 16-bit word for each group: four times three high bits, lowest first, s, and on top the sign
of the shift.
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
    random_bytes,
    random_scale,
    read_half,
    rms,
)
from octavo.quants._codebook import codebook, fit_codebook
from octavo.quants._grids import grid

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_RANDOM_RMS = rms(2 * np.arange(8) + 1) * rms(np.stack([grid(name) + 1 / 8, grid(name) - 1 / 8]))
_THREES = np.array([0, 3, 6, 9], np.uint16)


def integer_form(data: Bytes) -> IntegerForm:
    word = data[:, 34:].view("<u2")  # (n, 8)
    high = word[..., None] >> _THREES & np.uint16(7)
    point = data[:, 2:34] | high.reshape(len(data), 32) << np.uint16(8)
    shift = np.where(word >> np.uint16(15), np.int16(-1), np.int16(1))
    q = 8 * grid("iq1_s")[point].astype(np.int16).reshape(len(data), 8, 32) + shift[..., None]
    level = (word >> np.uint16(12) & np.uint16(7)).astype(np.float32)
    scale = read_half(data, 0) * (2 * level + 1) / np.float32(8)
    return IntegerForm(q.reshape(len(data), -1), scale, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    n_blocks = len(values)
    books = (codebook("iq1_s", 1 / 8), codebook("iq1_s", -1 / 8))
    fit = fit_codebook(values.reshape(n_blocks, 8, 4, 8), books, 1, 7, one_book=True)
    high = (fit.point >> np.uint16(8)).reshape(n_blocks, 8, 4) << _THREES
    word = np.bitwise_or.reduce(high, axis=2) | fit.level.astype(np.uint16) << np.uint16(12)
    word |= fit.book[:, ::4].astype(np.uint16) << np.uint16(15)
    fields = [half_bytes(fit.d), fit.point.astype(np.uint8), word.astype("<u2").view(np.uint8)]
    return np.concatenate(fields, axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
