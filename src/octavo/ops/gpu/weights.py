"""Weights on the device: native GGUF bytes, as they lie in the file.

A weight goes up when it is first asked for, or with all others in `place` at load. Its bytes on
the host stay what they are: a view of the mapped file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo import arena, quants
from octavo.ops.gpu.device import (
    IS_INTERPRETED,
    Tensor,
    empty,
    out_of_memory,
    pinned,
    to_device,
)
from octavo.ops.gpu.pinning import Pinning
from octavo.ops.weight import Weight

KEY = "gpu"  # of `Weight.memo`
EXPANDED = "gpu floats"
_CHUNK_BYTES = 16 << 20
_THREADS = 6  # each copies from the file's pages into pinned memory, and from there up


def device_bytes(weight: Weight) -> Tensor:
    """The block bytes of a weight on the device, uint8 (n_bytes,), aligned to 512 bytes."""
    if KEY not in weight.memo:
        weight.memo[KEY] = to_device(weight.data)
    return weight.memo[KEY]


def floats(weight: Weight) -> Tensor:
    """A small weight's values on the device, float32 in its shape: norms, biases, router gates.

    Of another format than f32 an expanded copy is made once.
    """
    if weight.format == "f32":
        return device_bytes(weight).view(torch.float32).reshape(weight.shape)
    if EXPANDED not in weight.memo:
        weight.memo[EXPANDED] = to_device(quants.unpack(weight.format, weight.data, weight.shape))
    return weight.memo[EXPANDED]


def place(weights: Sequence[Weight], progress: Callable[[int, int], None]) -> None:
    """Bring the weights to the device, all room first.

    Raises:
        MemoryPlanError: they do not fit; what was allocated is given back.
    """
    missing = [w for w in weights if KEY not in w.memo]
    n_bytes = sum(len(w.data) for w in missing)
    try:
        rooms = [empty(len(w.data), dtype=torch.uint8) for w in missing]
    except torch.OutOfMemoryError as error:
        raise out_of_memory(n_bytes) from error
    jobs = [
        (room[start : start + _CHUNK_BYTES], w.data[start : start + _CHUNK_BYTES])
        for room, w in zip(rooms, missing, strict=True)
        for start in range(0, len(w.data), _CHUNK_BYTES)
    ]
    lifting = _Lifting(n_bytes, progress)
    with ThreadPoolExecutor(_THREADS, "octavo-upload") as pool:
        for _ in pool.map(lifting.run, (jobs[i::_THREADS] for i in range(_THREADS))):
            pass
    for weight, room in zip(missing, rooms, strict=True):
        weight.memo[KEY] = room


def leave(weights: Sequence[Weight]) -> None:
    """Let the device read these where they are, in main memory: tables of which it needs few rows.

    Where the system does not pin them they go to the device like others.

    Raises:
        MemoryPlanError: then they do not fit.
    """
    for weight in weights:
        data = weight.data
        if not data.flags.writeable:  # mapped
            data = arena.allocate(len(weight.data))
            np.copyto(data, weight.data)
        pinning = Pinning()
        if pinning.pin(data):
            weight.memo.update({KEY: torch.from_numpy(data), "gpu pinning": pinning})
        else:
            place([weight], lambda done, total: None)


class _Lifting:
    """What the uploading threads share."""

    def __init__(self, n_bytes: int, progress: Callable[[int, int], None]) -> None:
        self._n_bytes = n_bytes
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[tuple[Tensor, NDArray[np.uint8]]]) -> None:
        """One thread's share: a chunk is copied to pinned memory while the one before goes up."""
        if IS_INTERPRETED:
            for room, data in jobs:
                room.copy_(torch.from_numpy(np.array(data)))
                self._note(len(data))
            return
        stream = torch.cuda.Stream()
        stages = [(pinned(_CHUNK_BYTES, torch.uint8), torch.cuda.Event()) for _ in range(2)]
        with torch.cuda.stream(stream):
            for i, (room, data) in enumerate(jobs):
                self._lift(room, data, *stages[i % 2])
                self._note(len(data))
        stream.synchronize()

    def _lift(self, room: Tensor, data: NDArray[np.uint8], stage: Tensor, is_free: Any) -> None:
        is_free.synchronize()
        np.copyto(stage[: len(data)].numpy(), data)
        room.copy_(stage[: len(data)], non_blocking=True)
        is_free.record()

    def _note(self, n: int) -> None:
        with self._lock:
            self._done += n
            self._progress(self._done, self._n_bytes)
