"""Qwen3-Next: as Qwen3.5 with experts, but value heads stay grouped: j belongs to j // (V / K).

Alpha and beta lie in one matrix, per key head: first the betas, then the alphas of its value
heads.
"""

from __future__ import annotations

import numpy as np

from octavo.gguf.meta import Metadata
from octavo.kv.state import RecurrentSpec
from octavo.models import qwen35
from octavo.models.config import Config
from octavo.models.decoder import Decoder
from octavo.models.source import WeightSource, take_rows
from octavo.ops.weight import Weight


def read(metadata: Metadata) -> Config:
    return qwen35.read(metadata, tiled=False)


def build(config: Config, weights: WeightSource) -> Decoder:
    return qwen35.build(config, weights, projections=_alpha_beta)


def _alpha_beta(config: Config, weights: WeightSource, i: int) -> tuple[Weight, Weight]:
    spec = config.layers[i]
    assert isinstance(spec, RecurrentSpec), "block i is not a delta-net block"
    both = weights(f"blk.{i}.ssm_ba.weight", (2 * spec.n_value_heads, config.n_embd))
    rows = np.arange(2 * spec.n_value_heads).reshape(spec.n_key_heads, 2, -1)
    return (
        take_rows(both, rows[:, 1].reshape(-1), f"blk.{i}.ssm_alpha.weight"),
        take_rows(both, rows[:, 0].reshape(-1), f"blk.{i}.ssm_beta.weight"),
    )
