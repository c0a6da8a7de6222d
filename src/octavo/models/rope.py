"""Tables of rotary frequencies: plain, linearly scaled, YaRN (arXiv 2309.00071)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from octavo.models.config import Rope
from octavo.models.source import WeightSource, as_floats
from octavo.ops.weight import RopeTable


def table(rope: Rope, weights: WeightSource) -> RopeTable:
    """The table of `rope`; a tensor `rope_freqs.weight` (n_dims / 2,) divides its frequencies.

    M-RoPE with text gives all its sections the same position, so it needs nothing of its own.
    """
    frequencies = _frequencies(rope)
    divisors = weights.optional("rope_freqs.weight", (rope.n_dims // 2,))
    if divisors is not None:
        frequencies = frequencies / as_floats(divisors).floats()
    magnitude = rope.attention_factor
    if rope.scaling == "yarn":
        magnitude *= 1 + 0.1 * math.log(rope.factor)
    return RopeTable(frequencies.astype(np.float32), rope.pairing, magnitude, weights.backend)


def _frequencies(rope: Rope) -> NDArray[np.float64]:
    pair = np.arange(rope.n_dims // 2)
    plain = rope.base ** (-2 * pair / rope.n_dims)
    if rope.scaling == "none":
        return plain
    if rope.scaling == "linear":
        return plain / rope.factor
    # YaRN: fast pairs keep their frequency, slow ones are stretched, a ramp lies between.
    low = max(math.floor(_pair_turning(rope, rope.beta_fast)), 0)
    high = min(math.ceil(_pair_turning(rope, rope.beta_slow)), rope.n_dims - 1)
    stretched = np.clip((pair - low) / max(high - low, 0.001), 0, 1)
    return plain * (1 - stretched) + plain / rope.factor * stretched


def _pair_turning(rope: Rope, n_turns: float) -> float:
    """Which pair (a real number) turns `n_turns` times over the original context."""
    turn = rope.original_context / (n_turns * 2 * math.pi)
    return rope.n_dims * math.log(turn) / (2 * math.log(rope.base))
