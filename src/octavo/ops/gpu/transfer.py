"""What crosses between the host and the device in a step: its batch up, its results down.

Both copies are asynchronous and may be part of a captured step: they go between the device and
pinned host memory that stays where it is, so a replay takes up what has been written there since.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.kv.batch import Batch
from octavo.ops.gpu.device import Tensor, find, is_capturing, pinned, synchronise


def host_ints(n: int) -> NDArray[np.int32]:
    """Memory (n,) for the arrays of a batch, zeros."""
    found: NDArray[np.int32] = pinned(n, torch.int32).zero_().numpy()
    return found


def upload(batch: Batch) -> Batch:
    """The batch with arrays on the device: int32 tensors, views of one copy."""
    host = torch.from_numpy(batch.buffer)
    return batch.in_buffer(host.to(find().torch_device, non_blocking=True, copy=True))


def download(tensor: Tensor) -> NDArray[np.float32]:
    """A float32 result as a NumPy array; in a captured step it is written by each replay."""
    host = pinned(tensor.numel(), tensor.dtype).view(tensor.shape)
    host.copy_(tensor, non_blocking=True)
    if not is_capturing():
        synchronise()
    found: NDArray[np.float32] = host.numpy()
    return found
