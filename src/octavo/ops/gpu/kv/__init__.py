"""Cache formats on the GPU, one a file: the bytes are those of `kv/formats/<stem>.py`.

Each module has `key_bytes(dim)` and `value_bytes(dim)`, the bytes of one head's block in a page;
`OPERAND`, the type that products are made in; and four Triton functions on a block:

- `load_keys(block, first, DIM, D, N)` -> (D, N): keys of N positions from `first` on, transposed.
  D is DIM filled up to a power of two; what is beyond DIM is 0. Positions that were never written
  may give anything.
- `load_values(block, first, n, DIM, D, N)` -> (N, D): values; 0 from position `n` of the page on.
- `write_keys`, `write_values(block, positions, is_new, x, DIM, D)`: store rows x (n, D), float32,
  at `positions` (n,) of the page where `is_new` (n,).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

from octavo import registry
from octavo.kv import formats
from octavo.kv.state import AttentionSpec


class DeviceFormat(Protocol):
    """What a module in this package offers; the four functions are Triton's."""

    OPERAND: Any
    load_keys: Any
    load_values: Any
    write_keys: Any
    write_values: Any

    def key_bytes(self, dim: int) -> int: ...

    def value_bytes(self, dim: int) -> int: ...


def find(name: str) -> DeviceFormat:
    """The format of that name.

    Raises:
        UnsupportedError: there is none here; the message lists those there are.
    """
    return cast(DeviceFormat, registry.find("ops.gpu.kv", name, "cache format on the GPU"))


@dataclass(frozen=True)
class Layout:
    """What kernels know of a layer when they are compiled: one argument, `LAYER`."""

    kv_heads: int
    group: int  # query heads of a key head
    window: int
    key_dim: int
    value_dim: int
    padded_key_dim: int
    padded_value_dim: int
    key_bytes: int  # of one head in a page
    value_bytes: int
    page_bytes: int
    operand: Any
    load_keys: Any
    load_values: Any
    write_keys: Any
    write_values: Any

    @property
    def cache_key(self) -> str:
        """What Triton tells compiled kernels apart by: the numbers, and the functions' text."""
        functions = self.load_keys, self.load_values, self.write_keys, self.write_values
        return "-".join([str(self), *(f.cache_key for f in functions)])


@cache
def layout(name: str, spec: AttentionSpec, n_heads: int) -> Layout:
    """The layout of layers of the format `name` that H query heads read."""
    format = find(name)
    return Layout(
        spec.n_kv_heads,
        n_heads // spec.n_kv_heads,
        spec.window,
        spec.key_dim,
        spec.value_dim,
        _padded(spec.key_dim, name),
        _padded(spec.value_dim, name),
        format.key_bytes(spec.key_dim),
        format.value_bytes(spec.value_dim),
        formats.page_bytes(name, spec),
        format.OPERAND,
        format.load_keys,
        format.load_values,
        format.write_keys,
        format.write_values,
    )


def _padded(dim: int, name: str) -> int:
    """A power of two that holds the dims: 16 for products, 32 for a group of q8_0."""
    least = 32 if name == "q8_0" else 16
    return max(least, 1 << (dim - 1).bit_length())
