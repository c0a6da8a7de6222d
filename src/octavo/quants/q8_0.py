"""q8_0: 32 weights; half-precision d, then 32 int8. w = d * q."""

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

name, ggml_id, block_elements, block_bytes = identity(__name__)
group_elements = 32

_RANDOM_RMS = rms(range(-128, 128))


def integer_form(data: Bytes) -> IntegerForm:
    return IntegerForm(data[:, 2:].view(np.int8).astype(np.int16), read_half(data, 0), None)


def unpack(data: Bytes) -> Floats:
    return expand(integer_form(data))


def pack(values: Floats) -> Bytes:
    d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scaled = values * ratio(1, d)
    whole = np.trunc(scaled)
    q = whole + np.trunc(2 * (scaled - whole))  # halves away from zero, as ggml rounds
    return np.concatenate([half_bytes(d), q.astype(np.int8).view(np.uint8)], axis=1)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    data = random_bytes(n_blocks, block_bytes, rng)
    data[:, :2] = half_bytes(random_scale(n_blocks, rng, std / _RANDOM_RMS))
    return data
