"""Pages of plain floats: keys transposed (d, 64) a head, values (64, dv) a head.

Keys lie transposed so that q.k of 64 positions is d multiply-adds of whole vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from octavo.kv.layers import AttentionLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec

Floats = NDArray[np.float32]


def page_bytes(n_heads: int, key_dim: int, value_dim: int, value_bytes: int) -> int:
    """Bytes of a page whose numbers take `value_bytes` each."""
    return PAGE_TOKENS * n_heads * (key_dim + value_dim) * value_bytes


def write(
    layer: AttentionLayer, page: int, offset: int, k: Floats, v: Floats, dtype: DTypeLike
) -> None:
    """Round k (n, K, d) and v (n, K, dv) to `dtype` and store them from position `offset` on."""
    keys, values = _views(layer, page, dtype)
    rows = slice(offset, offset + len(k))
    with np.errstate(over="ignore"):  # beyond half's range: infinite, as the C++ twin stores it
        keys[:, :, rows] = k.transpose(1, 2, 0)
        values[:, rows] = v.transpose(1, 0, 2)


def read(layer: AttentionLayer, page: int, n: int, dtype: DTypeLike) -> tuple[Floats, Floats]:
    """The first n positions: k (n, K, d), v (n, K, dv)."""
    keys, values = _views(layer, page, dtype)
    k = keys[:, :, :n].transpose(2, 0, 1)
    v = values[:, :n].transpose(1, 0, 2)
    return k.astype(np.float32, order="C"), v.astype(np.float32, order="C")


def _views(
    layer: AttentionLayer, page: int, dtype: DTypeLike
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Keys (K, d, 64) and values (K, 64, dv) of a page, in place."""
    spec: AttentionSpec = layer.spec
    numbers: NDArray[np.floating] = layer.data[page].view(dtype)
    n_keys = spec.n_kv_heads * spec.key_dim * PAGE_TOKENS
    return (
        numbers[:n_keys].reshape(spec.n_kv_heads, spec.key_dim, PAGE_TOKENS),
        numbers[n_keys:].reshape(spec.n_kv_heads, PAGE_TOKENS, spec.value_dim),
    )
