"""Cache formats, one a file; the stem is the format's name.

A format says how 64 positions of one layer lie in a page: first the key blocks, head by head,
then the value blocks. Each module has `page_bytes`, `write` and `read`, here in NumPy;
`csrc/kv/<stem>.h` reads and writes the same bytes.
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from octavo import registry
from octavo.kv.layers import AttentionLayer
from octavo.kv.state import AttentionSpec

Floats = NDArray[np.float32]


class CacheFormat(Protocol):
    """What a module in this package offers."""

    def page_bytes(self, n_heads: int, key_dim: int, value_dim: int) -> int:
        """Bytes of one page of one layer, a multiple of 64."""
        ...

    def write(self, layer: AttentionLayer, page: int, offset: int, k: Floats, v: Floats) -> None:
        """Store k (n, K, d) and v (n, K, dv) at positions offset... of a page; n may be 0."""
        ...

    def read(self, layer: AttentionLayer, page: int, n: int) -> tuple[Floats, Floats]:
        """The first n positions of a page: k (n, K, d), v (n, K, dv), dequantised."""
        ...


def find(name: str) -> CacheFormat:
    """The format of that name.

    Raises:
        UnsupportedError: there is none; the message lists those there are.
    """
    return cast(CacheFormat, registry.find("kv.formats", name, "cache format"))


def page_bytes(name: str, spec: AttentionSpec) -> int:
    """Bytes of one page of a layer in the format `name`."""
    return find(name).page_bytes(spec.n_kv_heads, spec.key_dim, spec.value_dim)
