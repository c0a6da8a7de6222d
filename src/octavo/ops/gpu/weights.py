"""Weights on the device: native GGUF bytes, as they lie in the file.

A weight goes up when it is first asked for, or with all others in `place` at load. Its bytes on
the host stay what they are: a view of the mapped file.
"""

from __future__ import annotations

import torch

from octavo.ops.gpu.device import Tensor, to_device
from octavo.ops.weight import Weight

KEY = "gpu"  # of `Weight.memo`


def device_bytes(weight: Weight) -> Tensor:
    """The block bytes of a weight on the device, uint8 (n_bytes,), aligned to 512 bytes."""
    if KEY not in weight.memo:
        weight.memo[KEY] = to_device(weight.data)
    return weight.memo[KEY]


def floats(weight: Weight) -> Tensor:
    """A float32 weight's values on the device, in its shape: norms, biases, router gates."""
    if weight.format != "f32":
        raise TypeError(f"{weight.name}: floats() of a {weight.format} weight; f32 expected")
    return device_bytes(weight).view(torch.float32).reshape(weight.shape)
