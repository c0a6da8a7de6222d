"""From the states of a text's tokens to one vector."""

from __future__ import annotations

import numpy as np

from octavo.errors import RequestError, UnsupportedError
from octavo.ops import Array


def pool(hidden: Array, kind: str) -> Array:
    """Final-norm states (T, D), T > 0 -> (D,): "mean", "cls" (the first) or "last".

    Raises:
        UnsupportedError: another kind; "" is that of a model not made for embeddings.
    """
    if kind == "mean":
        return np.asarray(hidden.mean(axis=0, dtype=np.float64), np.float32)
    if kind in ("cls", "last"):
        return np.array(hidden[0 if kind == "cls" else -1])
    raise UnsupportedError(
        f"The model's pooling is {kind or 'none'!r}",
        "Use an embedding model that pools by mean, cls or last, such as Qwen3-Embedding.",
    )


def vector(pooled: Array, dimensions: int | None = None, normalise: bool = True) -> Array:
    """The first `dimensions` of `pooled` (D,), scaled to length 1.

    Raises:
        RequestError: more dimensions than there are, or none.
    """
    size = len(pooled) if dimensions is None else dimensions
    if not 1 <= size <= len(pooled):
        raise RequestError(
            f"{size} dimensions were asked for", f"This model gives 1 to {len(pooled)}."
        )
    cut = pooled[:size].astype(np.float64)
    if normalise:
        cut /= max(float(np.linalg.norm(cut)), 1e-12)
    return cut.astype(np.float32)
