"""Reading and writing the fields of a block: bit fields, half-precision scales, random bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from octavo.gguf.ggml_types import by_name

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_HALF_MAX = 65504.0

# A scale below this is zero in every format (half precision ends at 6e-8), and its inverse could
# overflow.
_TINY = 1e-30


class IntegerForm(NamedTuple):
    """Weights as `scale * q + offset`, one scale and offset for each group of weights in a row.

    q: (n_blocks, block_elements) int16, within -128..127.
    scale, offset: (n_blocks, block_elements / group_elements) float32; no offset is zero.
    """

    q: NDArray[np.int16]
    scale: Floats
    offset: Floats | None


def identity(module_name: str) -> tuple[str, int, int, int]:
    """(name, ggml id, block elements, block bytes) of the format whose module this is."""
    found = by_name(module_name.rpartition(".")[2])
    return found.name, found.id, found.block_elements, found.block_bytes


def expand(form: IntegerForm) -> Floats:
    """The weights (n_blocks, block_elements).

    Equal to ggml's order of operations: a scale is exact in float32 (11 bits of half precision
    times at most 8), so each weight is rounded once, or twice with an offset, in either order.
    """
    n_blocks, n_groups = form.scale.shape
    grouped = form.q.astype(np.float32).reshape(n_blocks, n_groups, form.q.shape[1] // n_groups)
    grouped *= form.scale[..., None]
    if form.offset is not None:
        grouped += form.offset[..., None]
    return grouped.reshape(form.q.shape)


def split_bits(data: Bytes, run: int, width: int) -> Bytes:
    """Bit fields of `width` out of bytes: (n, m) -> (n, m * 8 / width).

    Bytes come in runs of `run`: first the lowest fields of all bytes of a run, then the next.
    """
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    n, m = data.shape
    fields = (data.reshape(n, m // run, 1, run) >> shifts) & np.uint8((1 << width) - 1)
    return fields.reshape(n, m * 8 // width)


def join_bits(fields: Bytes, run: int, width: int) -> Bytes:
    """The inverse of `split_bits`; fields must fit in `width` bits."""
    n, m = fields.shape
    per_byte = 8 // width
    parts = fields.reshape(n, m // (per_byte * run), per_byte, run)
    data = parts[:, :, 0].copy()
    for i in range(1, per_byte):
        data |= parts[:, :, i] << np.uint8(i * width)
    return data.reshape(n, m // per_byte)


def read_half(data: Bytes, start: int) -> Floats:
    """The half-precision number at byte `start` of each block: (n, 1) float32."""
    return data[:, start : start + 2].view("<f2").astype(np.float32)


def to_half(values: Floats) -> Floats:
    """Values as half precision would keep them; those out of range become the largest."""
    clipped = np.clip(values, -_HALF_MAX, _HALF_MAX)
    return clipped.astype(np.float16).astype(np.float32)


def half_bytes(values: Floats) -> Bytes:
    """(n, 1) float32 -> (n, 2) bytes of half precision; out of range becomes the largest."""
    return np.clip(values, -_HALF_MAX, _HALF_MAX).astype("<f2").view(np.uint8)


def ratio(a: Floats | float, b: Floats) -> Floats:
    """a / b, and 0 where b is nothing."""
    out = np.zeros(np.broadcast_shapes(np.shape(a), b.shape), np.float32)
    return np.divide(a, b, out=out, where=np.abs(b) > _TINY)


def random_bytes(n_blocks: int, block_bytes: int, rng: np.random.Generator) -> Bytes:
    """(n_blocks, block_bytes) of noise."""
    n = n_blocks * block_bytes
    words = rng.integers(0, 2**64 - 1, -(-n // 8), dtype=np.uint64, endpoint=True)
    return words.view(np.uint8)[:n].reshape(n_blocks, block_bytes)


def random_scale(n_blocks: int, rng: np.random.Generator, rms: float) -> Floats:
    """(n_blocks, 1) scales within a factor of 3 of each other, whose mean square is rms squared."""
    wide = rng.random((n_blocks, 1), np.float32) + np.float32(0.5)
    return wide * np.float32(rms / np.sqrt(13 / 12))


def rms(values: ArrayLike) -> float:
    """Root of the mean square of an array-like: what random fields contribute to a weight."""
    return float(np.sqrt(np.mean(np.square(np.asarray(values, np.float64)))))
