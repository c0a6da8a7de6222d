"""Qwen3.5 and 3.6, dense: three gated delta nets to one gated attention; a draft block.

Value head j of a delta net belongs to key head j mod K: the converter re-ordered them. Norm
weights in the file already hold the "+ 1" of the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from octavo.gguf.meta import Metadata
from octavo.kv.state import AttentionSpec, RecurrentSpec
from octavo.models import config as shape
from octavo.models.blocks import Block, Mixer, attention, delta_net, feed_forward, norm_weight
from octavo.models.config import Config
from octavo.models.decoder import Decoder, draft_block
from octavo.models.rope import table
from octavo.models.source import WeightSource
from octavo.ops.weight import RopeTable, Weight

# (config, weights, block) -> the alpha and beta projections of a delta net
Projections = Callable[[Config, WeightSource, int], tuple[Weight, Weight]]


def read(metadata: Metadata, *, tiled: bool = True) -> Config:
    config = shape.decoder(metadata)
    attends = config.layers[0]
    assert isinstance(attends, AttentionSpec), "decoder() describes attention layers"
    n_mtp = shape.mtp_blocks(metadata)
    layers = shape.hybrid_layers(metadata, attends, n_mtp, tiled)
    return replace(config, n_layers=config.n_layers - n_mtp, n_mtp=n_mtp, layers=layers)


def alpha_beta(config: Config, weights: WeightSource, i: int) -> tuple[Weight, Weight]:
    spec = config.layers[i]
    assert isinstance(spec, RecurrentSpec), "block i is not a delta-net block"
    shape = (spec.n_value_heads, config.n_embd)
    return (
        weights(f"blk.{i}.ssm_alpha.weight", shape),
        weights(f"blk.{i}.ssm_beta.weight", shape),
    )


def build(
    config: Config, weights: WeightSource, *, projections: Projections = alpha_beta
) -> Decoder:
    rope = table(config.rope, weights)
    blocks = [_block(config, weights, i, rope, projections) for i in range(len(config.layers))]
    trunk = blocks[: config.n_layers]
    drafter = draft_block(config, weights, blocks[config.n_layers]) if config.n_mtp else None
    return Decoder(config, weights, trunk, drafter)


def _block(
    config: Config, weights: WeightSource, i: int, rope: RopeTable, projections: Projections
) -> Block:
    mixer: Mixer
    if isinstance(config.layers[i], RecurrentSpec):
        mixer = delta_net(config, weights, i, *projections(config, weights, i))
    else:
        mixer = attention(config, weights, i, rope, qk_norm=True, is_gated=True)
    return Block(
        norm=norm_weight(weights, f"blk.{i}.attn_norm", config.n_embd),
        mixer=mixer,
        ffn_norm=norm_weight(weights, f"blk.{i}.post_attention_norm", config.n_embd),
        ffn=feed_forward(config, weights, i),
        eps=config.norm_eps,
    )
