"""IEEE half precision, rounded to nearest even: the default cache."""

from __future__ import annotations

import numpy as np

from octavo.kv.formats import _plain
from octavo.kv.formats._plain import Floats
from octavo.kv.layers import AttentionLayer


def page_bytes(n_heads: int, key_dim: int, value_dim: int) -> int:
    """Bytes of one page of one layer."""
    return _plain.page_bytes(n_heads, key_dim, value_dim, value_bytes=2)


def write(layer: AttentionLayer, page: int, offset: int, k: Floats, v: Floats) -> None:
    """Store k (n, K, d) and v (n, K, dv) from position `offset` of the page on."""
    _plain.write(layer, page, offset, k, v, np.float16)


def read(layer: AttentionLayer, page: int, n: int) -> tuple[Floats, Floats]:
    """The first n positions: k (n, K, d), v (n, K, dv)."""
    return _plain.read(layer, page, n, np.float16)
