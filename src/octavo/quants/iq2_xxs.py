"""iq2_xxs: 256 weights in 8 groups of 32. w = d / 8 * (2 s + 1) * sign * point, s in 0..15.

Bytes: half-precision d, then 8 for each group: 4 numbers of points (8 weights each) and a 32-bit
word of four 7-bit sign numbers, lowest first, and s on top.
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
from octavo.quants._codebook import codebook, fit_codebook, take_signs
from octavo.quants._grids import grid, sign_table

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_RANDOM_RMS = rms(2 * np.arange(16) + 1) / 8 * rms(grid(name))


def integer_form(data: Bytes) -> IntegerForm:
    groups = data[:, 2:].reshape(len(data), 8, 8)
    word = groups[..., 4:].view("<u4")  # (n, 8, 1)
    signs = sign_table()[word >> np.array([0, 7, 14, 21], np.uint32) & np.uint32(127)]
    q = grid(name)[groups[..., :4]] * signs  # (n, 8, 4, 8)
    level = (word[..., 0] >> np.uint32(28)).astype(np.float32)
    scale = read_half(data, 0) * (2 * level + 1) / np.float32(8)
    return IntegerForm(q.reshape(len(data), -1).astype(np.int16), scale, None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    n_blocks = len(values)
    signs, x = take_signs(values, even=True)
    fit = fit_codebook(x.reshape(n_blocks, 8, 4, 8), (codebook(name),), 1 / 8, 15)
    word = fit.level.astype("<u4") << np.uint32(28)
    for i in range(4):
        word |= (signs[:, i::4] & np.uint8(127)).astype("<u4") << np.uint32(7 * i)
    points = fit.point.astype(np.uint8).reshape(n_blocks, 8, 4)
    groups = np.concatenate([points, word[..., None].view(np.uint8)], axis=2)
    return np.concatenate([half_bytes(fit.d), groups.reshape(n_blocks, -1)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
