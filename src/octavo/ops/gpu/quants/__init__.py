"""What each block format means, in Triton: native GGUF bytes to a tile of float32 weights.

One module a format, with the stem of its meaning in `octavo.quants`. Each has

    parts(rows, table, n_blocks, first, SPANS) -> q, scale, offset

`rows` (R,) are uint8 pointers to the starts of R rows of `n_blocks` blocks. The weights from number
`first` * 128 of each row on, SPANS * 128 of them, are q * scale + offset: q is float32 (R, any
shape that flattens to them in their order), scale and offset are float32 (R, a, b) with a * b
groups of equal size. `offset` counts where the module says `HAS_OFFSET = True`. `unpack` puts the
three together, bit for bit as `octavo.quants`. Beyond the end of a row they repeat weights of its
last block: callers put zeros against them; with `n_blocks` None there is nothing beyond. `table` is
the format's codebook on the device, and unused by formats that have none; a module that has one
says it in `codebook()`.

A span of 128 weights is half a block of 256, or some small blocks.

Two numbers say how a tile lies in the registers of a warp, so that activations can be loaded
to lie likewise; were they wrong, the compiler would move data about and results be the same.
`VEC` weights of a thread stand side by side: of bytes, as many as the alignment of a block lets
one load take. `RUN`: weights k and k + RUN come from the two halves of a byte; 0: no such thing.
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
    parts: Any
    vec: int
    run: int
    has_offset: bool
    table: Tensor
    """The codebook; one unused float where the format has none."""
    block_elements: int
    block_bytes: int

    @property
    def constants(self) -> tuple[Any, ...]:
        """What a kernel is compiled for."""
        numbers = self.block_elements, self.block_bytes
        return self.parts, self.vec, self.run, self.has_offset, *numbers


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
    return Format(
        name,
        module.parts,
        module.VEC,
        getattr(module, "RUN", 0),
        getattr(module, "HAS_OFFSET", False),
        empty(1) if codebook is None else to_device(codebook()),
        meaning.block_elements,
        meaning.block_bytes,
    )
