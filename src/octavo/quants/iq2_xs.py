"""iq2_xs: 256 weights in 16 groups of 16. w = d / 8 * (2 s + 1) * sign * point, s in 0..15.

Bytes: half-precision d, 32 words of 16 bits, each for 8 weights: the number of the point in the
low 9 bits, a sign number above; 8 of s, low half first.
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
from octavo.quants._codebook import codebook, fit_codebook, take_signs
from octavo.quants._grids import grid, sign_table

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 16

_RANDOM_RMS = rms(2 * np.arange(16) + 1) / 8 * rms(grid(name))


def integer_form(data: Bytes) -> IntegerForm:
    word = data[:, 2:66].view("<u2")
    q = grid(name)[word & np.uint16(511)] * sign_table()[word >> np.uint16(9)]  # (n, 32, 8)
    level = split_bits(data[:, 66:], 1, 4).astype(np.float32)
    scale = read_half(data, 0) * (2 * level + 1) / np.float32(8)
    return IntegerForm(q.reshape(len(data), -1).astype(np.int16), scale, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    signs, x = take_signs(values, even=True)
    fit = fit_codebook(x.reshape(len(values), 16, 2, 8), (codebook(name),), 1 / 8, 15)
    word = fit.point | (signs & np.uint8(127)).astype(np.uint16) << np.uint16(9)
    fields = [half_bytes(fit.d), word.astype("<u2").view(np.uint8), join_bits(fit.level, 1, 4)]
    return np.concatenate(fields, axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
