"""iq2_s: 256 weights in 16 groups of 16. w = d / 8 * (2 s + 1) * sign * point, s in 0..15.

Bytes: half-precision d, 32 of the low 8 bits of the points' numbers (8 weights each), 32 of signs
(bit i of a byte for weight i, one is negative), 8 of the high two bits, 8 of s, low half first.
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
from octavo.quants._grids import grid

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 16

_RANDOM_RMS = rms(2 * np.arange(16) + 1) / 8 * rms(grid(name))


def integer_form(data: Bytes) -> IntegerForm:
    point = data[:, 2:34] | split_bits(data[:, 66:74], 1, 2).astype(np.uint16) << np.uint16(8)
    magnitudes = grid(name)[point].reshape(len(data), -1)
    signs = 1 - 2 * split_bits(data[:, 34:66], 1, 1).astype(np.int16)
    level = split_bits(data[:, 74:], 1, 4).astype(np.float32)
    scale = read_half(data, 0) * (2 * level + 1) / np.float32(8)
    return IntegerForm(magnitudes * signs, scale, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    signs, x = take_signs(values, even=False)
    fit = fit_codebook(x.reshape(len(values), 16, 2, 8), (codebook(name),), 1 / 8, 15)
    fields = [
        half_bytes(fit.d),
        fit.point.astype(np.uint8),
        signs,
        join_bits((fit.point >> np.uint16(8)).astype(np.uint8), 1, 2),
        join_bits(fit.level, 1, 4),
    ]
    return np.concatenate(fields, axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
