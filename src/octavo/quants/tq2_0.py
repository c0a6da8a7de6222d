"""tq2_0: 256 weights; 64 bytes of 2-bit numbers, half-precision d. w = d * (q - 1), q in 0..2.

Each 32 bytes are 128 weights: the lowest two bits of all are the first 32, and so on.
"""

from __future__ import annotations

import math

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
    split_bits,
)

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32


def integer_form(data: Bytes) -> IntegerForm:
    q = split_bits(data[:, :64], 32, 2).astype(np.int16) - np.int16(1)
    return IntegerForm(q, read_half(data, 64).repeat(8, axis=1), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, q = fit_ternary(values)
    return np.concatenate([join_bits(q, 32, 2), half_bytes(d)], axis=1)


def fit_ternary(values: Floats) -> tuple[Floats, Bytes]:
    """d (n, 1) and q (n, elements) in 0..2 with the least squared error of d * (q - 1).

    With k weights not zero, the best d is the mean of the k largest magnitudes and the error falls
    by k d^2; so all k are tried. Weights that are ternary already come out exactly.
    """
    descending = -np.sort(-np.abs(values), axis=1)
    sums = np.cumsum(descending, axis=1, dtype=np.float64)
    counts = np.arange(1, values.shape[1] + 1)
    k = (sums * sums / counts).argmax(axis=1)[:, None]
    d = (np.take_along_axis(sums, k, axis=1) / (k + 1)).astype(np.float32)
    q = np.sign(values) * (np.abs(values) >= np.take_along_axis(descending, k, axis=1))
    return d, (q + 1).astype(np.uint8)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    """q counts the ones of two random bits, so 3 never occurs and the mean is zero."""
    data = random_bytes(n_blocks, block_bytes, rng)
    even, odd = data[:, :64] & np.uint8(0x55), data[:, :64] >> np.uint8(1) & np.uint8(0x55)
    data[:, :64] = (even ^ odd) | (even & odd) << np.uint8(1)
    data[:, 64:] = half_bytes(random_scale(n_blocks, rng, std / math.sqrt(0.5)))
    return data
