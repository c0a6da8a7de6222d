"""Main memory that the card copies from at full speed, or reads in place: pinned after the fact.

Pinning takes some seconds for the experts of a large model, so a thread does it while the model
already answers; copies from what is not pinned yet are slower, nothing else. The system may let a
program pin only a part.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops.gpu import driver
from octavo.ops.gpu.device import IS_INTERPRETED, find
from octavo.ops.gpu.driver import POINTER, SIZE, WORD

_PORTABLE_AND_MAPPED = 3  # of cuMemHostRegister

Bytes = NDArray[np.uint8]


class Pinning:
    """What was pinned; unpinned when this object goes, which keeps the memory alive until then."""

    def __init__(self) -> None:
        self._pinned: list[Bytes] = []
        self._is_over = threading.Event()
        self._is_whole = threading.Event()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, _unpin, self._pinned, self._is_over)

    @property
    def n_bytes(self) -> int:
        return sum(len(array) for array in self._pinned)

    @property
    def is_done(self) -> bool:
        """Whether what was to be pinned later is, or is given up."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def is_whole(self) -> bool:
        """Whether all of it is, so that the card may read it in place."""
        return self._is_whole.is_set()

    def wait(self) -> None:
        """Until it is done."""
        if self._thread is not None:
            self._thread.join()

    def pin(self, array: Bytes) -> bool:
        """Pin memory that nothing else pins a page of; False: the system refuses."""
        return _pin(array, self._pinned)

    def pin_later(self, arrays: Sequence[Bytes], most_bytes: int) -> None:
        """Pin them in the background, in their order, as far as `most_bytes` and the system let."""
        work = (arrays, most_bytes, self._pinned, self._is_over, self._is_whole)
        self._thread = threading.Thread(target=_pin_all, args=work, name="octavo-pin", daemon=True)
        self._thread.start()


def _pin_all(
    arrays: Sequence[Bytes],
    most_bytes: int,
    pinned: list[Bytes],
    is_over: threading.Event,
    is_whole: threading.Event,
) -> None:
    for array in arrays:
        most_bytes -= len(array)
        if most_bytes < 0 or is_over.is_set() or not _pin(array, pinned):
            return
    is_whole.set()


def _pin(array: Bytes, pinned: list[Bytes]) -> bool:
    if IS_INTERPRETED or len(array) == 0:
        return True
    if find().is_amd or not array.flags.writeable:  # pages of a file are not ours
        return False
    torch.cuda.set_device(find().torch_device)  # gives this thread the context
    try:
        types: tuple[Any, ...] = POINTER, SIZE, WORD
        arguments = array.ctypes.data, len(array), _PORTABLE_AND_MAPPED
        driver.call("cuMemHostRegister_v2", types, *arguments)
    except (OSError, AttributeError, RuntimeError):
        return False
    pinned.append(array)
    return True


def _unpin(pinned: list[Bytes], is_over: threading.Event) -> None:
    is_over.set()
    for array in pinned:
        with contextlib.suppress(OSError, AttributeError, RuntimeError):  # the context may be gone
            torch.cuda.set_device(find().torch_device)
            driver.call("cuMemHostUnregister", (POINTER,), array.ctypes.data)
