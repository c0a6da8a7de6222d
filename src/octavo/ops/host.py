"""Memory of the back ends that compute in main memory: nothing has to be moved.

Both re-export these functions; `octavo.ops.backend` says what each is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo import arena
from octavo.ops.weight import Weight


def alloc(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return arena.allocate(n_bytes, fills_slowly=True).view(dtype).reshape(shape)


def host(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    return np.zeros(shape, dtype)


def send(array: NDArray[Any]) -> NDArray[Any]:
    return array


def fetch(array: NDArray[Any]) -> NDArray[Any]:
    return array


def store(array: NDArray[Any], values: NDArray[Any]) -> None:
    if values is not array:
        np.copyto(array, values)


def place(weights: Sequence[Weight], progress: Callable[[int, int], None]) -> None:
    """Weights are used where they are."""


def leave(weights: Sequence[Weight]) -> None:
    """As all others."""
