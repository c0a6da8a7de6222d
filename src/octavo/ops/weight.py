"""Weights: bytes as they lie in the GGUF file, with a format, a shape and a back end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.ops.backend import Backend
from octavo.record import dataclass

SLOT_ALIGNMENT_BYTES = 256
_MATRIX_ALIGNMENT_BYTES = 16  # as much as a thread reads at once


@dataclass(frozen=True, eq=False)
class Weight:
    """One tensor of a model.

    `shape` is in NumPy order: (n,), (rows, columns) or (experts, rows, columns); y = W x has
    `rows` outputs. `data` holds the native block bytes, uint8, 1-D. `format` is the stem of
    `quants/<format>.py`. A `bias` (rows,) is added by `linear`.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    backend: Backend
    bias: Weight | None = None
    # What a back end makes of the weight once (a handle, an expanded copy); its own business.
    memo: dict[str, Any] = field(default_factory=dict)

    def floats(self) -> NDArray[np.float32]:
        """A float32 weight's values in its shape: norms, biases and other small tensors."""
        if self.format != "f32":
            raise TypeError(f"{self.name}: floats() of a {self.format} weight; f32 expected")
        return self.data.view(np.float32).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class ExpertBank:
    """All routed experts of one layer: gate, up (experts, F, D) and down (experts, D, F).

    In files with fused gate and up, `gate` is the (experts, 2F, D) tensor, gate rows first, and
    `up` is None. `kind` is the activation of the gate: "silu" or "gelu".
    """

    gate: Weight
    up: Weight | None
    down: Weight
    kind: str
    backend: Backend
    memo: dict[str, Any] = field(default_factory=dict)


def slot_offsets(sizes: Sequence[int]) -> list[int]:
    """Where the matrices of an expert (bytes of each) begin in a slot of its own on a card, and
    at the end the bytes of the slot."""
    offsets = [0]
    for size in sizes:
        offsets.append(_up(offsets[-1] + size, _MATRIX_ALIGNMENT_BYTES))
    offsets[-1] = _up(offsets[-1], SLOT_ALIGNMENT_BYTES)
    return offsets


def _up(n: int, alignment: int) -> int:
    return n + -n % alignment


@dataclass(frozen=True)
class RouteRule:
    """How router logits become expert weights."""

    n_used: int
    activation: str = "softmax"  # or "sigmoid", over all experts
    normalise: bool = True  # chosen weights sum to 1
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Rotary positions: pair i turns by position * frequencies[i]; cos and sin times `magnitude`.

    `pairing` "neox" rotates dims (i, i + n/2), "adjacent" (2i, 2i + 1), n = 2 len(frequencies);
    dims from n on pass through.
    """

    frequencies: NDArray[np.float32]
    pairing: str
    magnitude: float
    backend: Backend
    memo: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RecurWeights:
    """The small tensors of a gated delta-rule layer, all float32."""

    conv: Weight  # (channels, kernel): taps of one channel consecutive, the last is the current
    a: Weight  # (value heads,): -exp(A_log)
    dt: Weight  # (value heads,): added to alpha before softplus
    norm: Weight  # (value dim,)
    eps: float
