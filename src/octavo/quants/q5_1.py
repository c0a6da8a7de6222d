"""q5_1: 32 weights; half-precision d and m, then 20 bytes as in q5_0. w = d * q + m."""

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
    ratio,
    read_half,
    rms,
)
from octavo.quants.q5_0 import five_bits, read_five_bits

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_RANDOM_RMS = rms(np.arange(32) - 15.5)


def integer_form(data: Bytes) -> IntegerForm:
    q = read_five_bits(data[:, 4:]).astype(np.int16)
    return IntegerForm(q, read_half(data, 0), read_half(data, 2))


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    low = values.min(axis=1, keepdims=True)
    d = (values.max(axis=1, keepdims=True) - low) / np.float32(31)
    q = np.clip(np.trunc((values - low) * ratio(1, d) + np.float32(0.5)), 0, 31).astype(np.uint8)
    return np.concatenate([half_bytes(d), half_bytes(low), five_bits(q)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    d = random_scale(n_blocks, rng, std / _RANDOM_RMS)
    data[:, :2] = half_bytes(d)
    data[:, 2:4] = half_bytes(d * np.float32(-15.5))
    return data
