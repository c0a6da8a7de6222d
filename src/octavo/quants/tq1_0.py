"""tq1_0: 256 weights; 52 bytes of base-3 digits, half-precision d. w = d * (q - 1), q in 0..2.

A byte holds five digits (the last four bytes: four) as a fraction of 256, rounded up: the leading
digit is byte * 3 / 256, and byte * 3 mod 256 brings up the next. The first 32 bytes hold the
leading digits of all, then the second, and so on; likewise the next 16 and the last 4.
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
from octavo.quants.tq2_0 import fit_ternary

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

# (first byte, bytes, digits of each)
_RUNS = ((0, 32, 5), (32, 16, 5), (48, 4, 4))
_RANDOM_RMS = rms([-1, 0, 1])


def integer_form(data: Bytes) -> IntegerForm:
    digits = []
    for start, n_bytes, n_digits in _RUNS:
        rest = data[:, start : start + n_bytes]
        for _ in range(n_digits):
            digits.append((rest.astype(np.int16) * np.int16(3)) >> np.int16(8))
            rest = rest * np.uint8(3)
    q = np.concatenate(digits, axis=1) - np.int16(1)
    return IntegerForm(q, read_half(data, 52).repeat(8, axis=1), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d, q = fit_ternary(values)
    fields, start = [], 0
    for _, n_bytes, n_digits in _RUNS:
        end = start + n_bytes * n_digits
        digits = q[:, start:end].reshape(-1, n_digits, n_bytes).astype(np.uint32)
        powers = np.array([81, 27, 9, 3, 1], np.uint32)[:n_digits, None]
        number = (digits * powers).sum(axis=1)
        fields.append((number * 256 + 242) // 243)
        start = end
    return np.concatenate([np.concatenate(fields, axis=1).astype(np.uint8), half_bytes(d)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, 52:54] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
