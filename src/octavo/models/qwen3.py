"""Qwen3, dense, and Qwen3-Embedding: each query and key head is normalised before RoPE."""

from __future__ import annotations

from dataclasses import replace

from octavo.gguf.meta import Metadata
from octavo.models import config as shape
from octavo.models import llama
from octavo.models.config import Config
from octavo.models.decoder import Decoder
from octavo.models.source import WeightSource


def read(metadata: Metadata) -> Config:
    config = shape.decoder(metadata)
    # Early Qwen3-Embedding files do not say how they pool.
    is_silent = f"{metadata.architecture}.pooling_type" not in metadata
    if is_silent and "embedding" in metadata.get("general.name", str, "").lower():
        return replace(config, pooling="last")
    return config


def build(config: Config, weights: WeightSource) -> Decoder:
    return llama.build(config, weights, qk_norm=True)
