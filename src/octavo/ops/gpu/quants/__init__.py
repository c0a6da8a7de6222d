"""What each block format means, in Triton: native GGUF bytes to a tile of float32 weights.

One module a format, with the stem of its meaning in `octavo.quants`. Each has

    span(rows, table, n_blocks, first, SPANS) -> (R, SPANS * 128) float32

`rows` (R,) are uint8 pointers to the starts of R rows of `n_blocks` blocks; the tile holds the
weights from number `first` * 128 of each row on, in their order and bit for bit as
`octavo.quants` has them. Beyond the end of a row the tile repeats weights of its last block:
callers put zeros against them. `table` is the format's codebook on the device, and unused by
formats that have none; a module that has one says it in `codebook()`.

A span of 128 weights is half a block of 256, or some small blocks. Loads are tiles of single
bytes: Triton joins neighbours to words of up to 16 bytes, as wide as the block's size lets them be
aligned.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from octavo import quants, registry
from octavo.errors import UnsupportedError
from octavo.ops.gpu.device import Tensor, empty, to_device

PLACE = "ops.gpu.quants"


class Format(NamedTuple):
    """What a kernel is launched with for weights of a format."""

    name: str
    span: Any
    table: Tensor
    """The codebook; one unused float where the format has none."""
    block_elements: int
    block_bytes: int


def names() -> tuple[str, ...]:
    """Formats that have kernels here, sorted."""
    return registry.names(PLACE)


@cache
def find(name: str) -> Format:
    """The format `name`.

    Raises:
        UnsupportedError: it has no kernels here; says which have.
    """
    if name not in names():
        raise UnsupportedError(
            f"{name} weights cannot be computed on the GPU; it knows {', '.join(names())}",
            "Use a file in one of these formats, or --device cpu.",
        )
    module = registry.find(PLACE, name, "block format")
    meaning = quants.get(name)
    codebook = getattr(module, "codebook", None)
    table = empty(1) if codebook is None else to_device(codebook())
    return Format(name, module.span, table, meaning.block_elements, meaning.block_bytes)
