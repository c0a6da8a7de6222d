"""nvfp4: 64 weights in 4 groups of 16. w = s / 2 * TABLE[q], the table of mxfp4.

Bytes: 4 of s as unsigned 8-bit floats (E4M3, bias 7), 32 of q: 8 for each group, low halves first.
There is no scale for the block; a tensor's own scale is a tensor apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.quants._blocks import (
    Bytes,
    Floats,
    IntegerForm,
    expand,
    identity,
    join_bits,
    random_bytes,
    random_scale,
    ratio,
    rms,
    split_bits,
)
from octavo.quants._scales import nearest_codes
from octavo.quants.mxfp4 import TABLE

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 16

_RANDOM_RMS = rms(TABLE)


def _half_scales() -> Floats:
    """s / 2 for each byte. The top bit is ignored, and 0x7F alone (NaN) counts as zero."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 8)
    values = np.where(exponent == 0, mantissa * 2.0**-10, normal)
    return np.where(code == 0x7F, 0, values).astype(np.float32)


_HALF_SCALES = _half_scales()
_CODES = np.arange(127)  # of the scales there are, ascending


def integer_form(data: Bytes) -> IntegerForm:
    q = TABLE.astype(np.int16)[split_bits(data[:, 4:], 8, 4)]
    return IntegerForm(q, _HALF_SCALES[data[:, :4]], None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    groups = values.reshape(-1, 16)
    peak_code = _nearest_scale(np.abs(groups).max(axis=1) / np.float32(12))
    best_error = np.full(len(groups), np.inf, np.float32)
    best_scale, best_codes = np.zeros(len(groups), np.uint8), np.zeros(groups.shape, np.uint8)
    for step in (0, -1, 1, 2, 3, 4):
        scale_code = np.clip(peak_code + step, 0, _CODES[-1])
        scale = _HALF_SCALES[scale_code][:, None]
        codes = nearest_codes(2 * groups * ratio(1, scale), TABLE)
        error = np.square(groups - scale * TABLE.astype(np.float32)[codes]).sum(axis=1)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best_scale = np.where(better, scale_code, best_scale).astype(np.uint8)
        best_codes = np.where(better[:, None], codes, best_codes)
    packed = join_bits(best_codes.reshape(len(values), -1), 8, 4)
    return np.concatenate([best_scale.reshape(-1, 4), packed], axis=1)


def _nearest_scale(half_scale: Floats) -> NDArray[np.intp]:
    ascending = _HALF_SCALES[_CODES]
    return np.searchsorted((ascending[1:] + ascending[:-1]) / 2, half_scale)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    scales = random_scale(4 * n_blocks, rng, std / _RANDOM_RMS)
    data[:, :4] = _nearest_scale(scales).reshape(n_blocks, 4)
    return data
