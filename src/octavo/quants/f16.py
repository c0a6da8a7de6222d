"""f16: IEEE half precision, little endian."""

from __future__ import annotations

import numpy as np

from octavo.quants._blocks import Bytes, Floats, identity
from octavo.quants.f32 import uniform

name, ggml_id, block_elements, block_bytes = identity(__name__)


def unpack(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def pack(values: Floats) -> Bytes:
    with np.errstate(over="ignore"):  # out of range is infinity, as the format says
        return values.astype("<f2").view(np.uint8)


def random_blocks(n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    return pack(uniform(n_blocks, rng, std))
