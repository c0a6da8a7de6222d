"""f32: IEEE single precision, little endian."""

from __future__ import annotations

import numpy as np

from octavo.quants._blocks import Bytes, Floats, identity

name, ggml_id, block_elements, block_bytes = identity(__name__)


def unpack(data: Bytes) -> Floats:
    return data.view("<f4").astype(np.float32)


def pack(values: Floats) -> Bytes:
    return values.astype("<f4").view(np.uint8)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    return pack(uniform(n_blocks, rng, std))


def uniform(n: int, rng: np.random.Generator, std: float) -> Floats:
    """(n, 1) evenly spread numbers, a good deal faster to draw than normal ones."""
    values = rng.random((n, 1), np.float32)
    values -= np.float32(0.5)
    values *= np.float32(std * np.sqrt(12))
    return values
