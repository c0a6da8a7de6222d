"""Weights on the device: native GGUF bytes, as they lie in the file.

A weight goes up when it is first asked for, or with all others in `place` at load. Its bytes on
the host stay what they are: a view of the mapped file.
"""

from __future__ import annotations

import torch

from octavo import quants
from octavo.ops.gpu.device import Tensor, to_device
from octavo.ops.weight import Weight

KEY = "gpu"  # of `Weight.memo`
EXPANDED = "gpu floats"


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
