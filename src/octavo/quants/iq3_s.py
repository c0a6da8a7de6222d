"""iq3_s: 256 weights in 8 groups of 32. w = d * (2 s + 1) * sign * point, s in 0..15.

Bytes: half-precision d, 64 of the low 8 bits of the points' numbers (4 weights each), 8 of their
ninth bits, 32 of signs (bit i of a byte for weight i, one is negative), 4 of s, low half first.
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
group_elements = 32

_RANDOM_RMS = rms(2 * np.arange(16) + 1) * rms(grid(name))


def integer_form(data: Bytes) -> IntegerForm:
    point = data[:, 2:66] | split_bits(data[:, 66:74], 1, 1).astype(np.uint16) << np.uint16(8)
    magnitudes = grid(name)[point].reshape(len(data), -1)
    signs = 1 - 2 * split_bits(data[:, 74:106], 1, 1).astype(np.int16)
    level = split_bits(data[:, 106:], 1, 4).astype(np.float32)
    return IntegerForm(magnitudes * signs, read_half(data, 0) * (2 * level + 1), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    signs, x = take_signs(values, even=False)
    fit = fit_codebook(x.reshape(len(values), 8, 8, 4), (codebook(name),), 1, 15)
    fields = [
        half_bytes(fit.d),
        fit.point.astype(np.uint8),
        join_bits((fit.point >> np.uint16(8)).astype(np.uint8), 1, 1),
        signs,
        join_bits(fit.level, 1, 4),
    ]
    return np.concatenate(fields, axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
