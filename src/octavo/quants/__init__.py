"""What each block format of a GGUF file means, in NumPy.

One module a format; its stem is ggml's type name in lower case. Shapes: a tensor's bytes are
seen as (n_blocks, block_bytes) uint8, its weights as (n_blocks, block_elements) float32. Nothing
here is meant to be fast enough for a model; it is what the kernels in `csrc/quants` are tested
against, and what reads and writes small tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from octavo import registry
from octavo.errors import FileFormatError, UnsupportedError
from octavo.quants._blocks import Bytes, Floats, IntegerForm
from octavo.quants._grids import grid

__all__ = [
    "BlockFormat",
    "IntegerForm",
    "QuantFormat",
    "get",
    "get_block",
    "grid",
    "names",
    "pack",
    "random_blocks",
    "unpack",
]

# Keeps the temporaries of a step in a core's second-level cache.
_CHUNK_ELEMENTS = 1 << 16


class QuantFormat(Protocol):
    """What every module of this package has."""

    name: str
    ggml_id: int
    block_elements: int
    block_bytes: int

    def unpack(self, data: Bytes) -> Floats:
        """(n_blocks, block_bytes) -> (n_blocks, block_elements), bit for bit as ggml."""

    def pack(self, values: Floats) -> Bytes:
        """(n_blocks, block_elements), finite -> (n_blocks, block_bytes)."""

    def random_blocks(self, n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
        """Valid blocks of random weights: mean about 0, standard deviation about `std`."""


class BlockFormat(QuantFormat, Protocol):
    """A format whose weights are small integers with a scale: all but f32, f16 and bf16."""

    group_elements: int
    """Consecutive weights that share scale and offset: 16 or 32."""

    def integer_form(self, data: Bytes) -> IntegerForm:
        """The same weights as `scale * q + offset`, which is how the kernels see them."""


def names() -> tuple[str, ...]:
    """All formats, sorted."""
    return registry.names("quants")


def get(name: str) -> QuantFormat:
    """The module of the format `name`.

    Raises:
        UnsupportedError: there is none; says which there are.
    """
    return cast(QuantFormat, registry.find("quants", name, "block format"))


def get_block(name: str) -> BlockFormat:
    """As `get`, for formats that have an integer form.

    Raises:
        UnsupportedError: no such format, or it holds plain floats.
    """
    found = get(name)
    if found.block_elements == 1:
        raise UnsupportedError(f"{name} holds plain floats and has no integer form")
    return cast(BlockFormat, found)


def unpack(name: str, data: NDArray[np.uint8], shape: Sequence[int]) -> Floats:
    """The weights of a whole tensor as float32 of `shape` (rows last, as NumPy counts).

    Raises:
        FileFormatError: `data` (any shape) has not the bytes that `shape` needs.
        UnsupportedError: no such format, or it cannot hold rows of that length.
    """
    form = get(name)
    _check_row(form, shape)
    n_blocks = math.prod(shape) // form.block_elements
    if data.size != n_blocks * form.block_bytes:
        raise FileFormatError(
            f"{name} weights of shape {tuple(shape)} have {data.size} bytes, "
            f"expected {n_blocks * form.block_bytes}"
        )
    blocks = np.ascontiguousarray(data).reshape(n_blocks, form.block_bytes)
    out = np.empty((n_blocks, form.block_elements), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives NaN, not a warning
        _in_chunks(form.unpack, blocks, out, form.block_elements)
    return out.reshape(shape)


def pack(name: str, array: NDArray[np.floating]) -> Bytes:
    """The bytes of a tensor: (..., row elements) -> (..., row bytes) uint8.

    Raises:
        FileFormatError: NaN or infinity in `array`, for a format with scales.
        UnsupportedError: no such format, or it cannot hold rows of that length.
    """
    form = get(name)
    _check_row(form, array.shape)
    n_blocks = array.size // form.block_elements
    values = np.ascontiguousarray(array, np.float32).reshape(n_blocks, form.block_elements)
    if form.block_elements > 1 and not np.isfinite(values).all():
        raise FileFormatError(
            f"The values hold NaN or infinity, which {name} cannot store",
            "Keep this tensor as f32, or look for the fault in its source.",
        )
    out = np.empty((n_blocks, form.block_bytes), np.uint8)
    _in_chunks(form.pack, values, out, form.block_elements)
    row_bytes = array.shape[-1] // form.block_elements * form.block_bytes
    return out.reshape(*array.shape[:-1], row_bytes)


def random_blocks(name: str, n_blocks: int, rng: np.random.Generator, std: float) -> Bytes:
    """Valid blocks (n_blocks, block_bytes) of random weights, far faster than packing.

    The weights have a mean of about 0 and a standard deviation of about `std` > 0.
    """
    form = get(name)
    out = np.empty((n_blocks, form.block_bytes), np.uint8)
    step = _CHUNK_ELEMENTS // form.block_elements
    for start in range(0, n_blocks, step):
        part = out[start : start + step]
        part[:] = form.random_blocks(len(part), rng, std)
    return out


def _check_row(form: QuantFormat, shape: Sequence[int]) -> None:
    if not shape or shape[-1] % form.block_elements:
        row = shape[-1] if shape else 1
        raise UnsupportedError(
            f"A row of {row} values cannot be {form.name}, "
            f"which holds {form.block_elements} at a time"
        )


def _in_chunks(
    convert: Callable[[NDArray[Any]], NDArray[Any]],
    source: NDArray[Any],
    out: NDArray[Any],
    block_elements: int,
) -> None:
    step = max(1, _CHUNK_ELEMENTS // block_elements)
    for start in range(0, len(source), step):
        out[start : start + step] = convert(source[start : start + step])
