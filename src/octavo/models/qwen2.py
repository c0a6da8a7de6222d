"""Qwen2 and Qwen2.5: as Llama, with RoPE over halves and biases on q, k and v."""

from __future__ import annotations

from octavo.gguf.meta import Metadata
from octavo.models import config as shape
from octavo.models.config import Config
from octavo.models.llama import build

__all__ = ["build", "read"]


def read(metadata: Metadata) -> Config:
    return shape.decoder(metadata)
