"""mxfp4: 32 weights; an exponent byte e, then 16 bytes as in q4_0. w = 2^(e - 128) * TABLE[q].

This is the OCP microscaling format with 4-bit floats (E2M1). The table holds their values doubled,
so that they are whole; the scale is therefore half of 2^(e - 127).
"""

from __future__ import annotations

import math

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
    ratio,
    rms,
    split_bits,
)
from octavo.quants._scales import nearest_codes

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

TABLE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_RANDOM_RMS = rms(TABLE)


def integer_form(data: Bytes) -> IntegerForm:
    q = TABLE.astype(np.int16)[split_bits(data[:, 1:], 16, 4)]
    return IntegerForm(q, _scale(data[:, :1]), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    """The peak lies below 8 * 2^(e - 127), or below 4 * 2^(e - 127) if that is nearer overall.

    Values reach 6 * 2^(e - 127): the larger exponent cuts nothing off, the smaller has finer steps.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=1, keepdims=True))
    trials = [_trial(values, np.clip(exponent + 127 - more, 0, 254)) for more in (3, 2)]
    better = trials[1][2] < trials[0][2]
    e = np.where(better, trials[1][0], trials[0][0]).astype(np.uint8)
    codes = np.where(better, trials[1][1], trials[0][1])
    return np.concatenate([e, join_bits(codes, 16, 4)], axis=1)


def _trial(values: Floats, e: NDArray[np.integer]) -> tuple[NDArray[np.integer], Bytes, Floats]:
    scale = _scale(e)
    codes = nearest_codes(2 * values * ratio(1, scale), TABLE)
    error = np.square(values - scale * TABLE.astype(np.float32)[codes])
    return e, codes, error.sum(axis=1, keepdims=True)


def _scale(e: NDArray[np.integer]) -> Floats:
    """2^(e - 128), also where that is below the normal range of float32."""
    return np.ldexp(np.float32(1), e.astype(np.int32) - 128)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    """Scales are powers of two, so two exponents are mixed to meet the deviation."""
    data = random_bytes(n_blocks, block_bytes, rng)
    target = std / _RANDOM_RMS
    low = math.floor(math.log2(target))
    share = ((target / 2.0**low) ** 2 - 1) / 3
    data[:, 0] = low + 128 + (rng.random(n_blocks, np.float32) < share)
    return data
