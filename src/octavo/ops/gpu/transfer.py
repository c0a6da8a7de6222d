"""What crosses between main memory and the device in a step: its arrays up, its results down.

The copies are asynchronous and may be part of a captured step: they go between the device and
pinned main memory that stays where it is, so a replay takes up what has been written there since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops.gpu import relay
from octavo.ops.gpu.device import DTYPES, Tensor, find, is_capturing, pinned, synchronise

_here = threading.local()  # .landings: those of the capture that is going on in this thread


class Landings:
    """Where the results of one step land in main memory: noted in its first run, used by all."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._n_used = 0

    @contextmanager
    def used(self) -> Iterator[None]:
        """Results that are fetched inside land here, in the order of the first time."""
        self._n_used = 0
        _here.landings = self
        try:
            yield
        finally:
            _here.landings = None

    def next(self, like: Tensor) -> Tensor:
        if self._n_used == len(self._tensors):
            self._tensors.append(_pinned_like(like))
        self._n_used += 1
        return self._tensors[self._n_used - 1]


def host(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    tensor = pinned(int(np.prod(shape)), DTYPES[dtype]).zero_()
    array: NDArray[Any] = tensor.numpy()
    return array.reshape(shape)


def send(array: NDArray[Any]) -> Tensor:
    relay.stand_apart()
    return torch.from_numpy(array).to(find().torch_device, non_blocking=True, copy=True)


def fetch(tensor: Tensor) -> NDArray[Any]:
    landings: Landings | None = getattr(_here, "landings", None)
    landing = _pinned_like(tensor) if landings is None else landings.next(tensor)
    if tensor.numel():
        landing.copy_(tensor, non_blocking=True)
        relay.stand_apart()
        if not is_capturing():
            synchronise()
    array: NDArray[Any] = landing.numpy()
    return array


def store(tensor: Tensor, values: NDArray[Any]) -> None:
    tensor.copy_(torch.from_numpy(values))


def _pinned_like(tensor: Tensor) -> Tensor:
    return pinned(tensor.numel(), tensor.dtype).view(tensor.shape)
