"""Llama and its kin: Mistral, SmolLM2, and with experts Mixtral.

The converter has permuted the rows of q and k so that RoPE turns adjacent pairs.
"""

from __future__ import annotations

from octavo.gguf.meta import Metadata
from octavo.models import config as shape
from octavo.models.blocks import Block, attention, feed_forward, norm_weight
from octavo.models.config import Config
from octavo.models.decoder import Decoder
from octavo.models.rope import table
from octavo.models.source import WeightSource


def read(metadata: Metadata) -> Config:
    return shape.decoder(metadata, pairing="adjacent")


def build(config: Config, weights: WeightSource, *, qk_norm: bool = False) -> Decoder:
    rope = table(config.rope, weights)
    blocks = [
        Block(
            norm=norm_weight(weights, f"blk.{i}.attn_norm", config.n_embd),
            mixer=attention(config, weights, i, rope, qk_norm=qk_norm),
            ffn_norm=norm_weight(weights, f"blk.{i}.ffn_norm", config.n_embd),
            ffn=feed_forward(config, weights, i),
            eps=config.norm_eps,
        )
        for i in range(config.n_layers)
    ]
    return Decoder(config, weights, blocks)
