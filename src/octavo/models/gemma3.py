"""Gemma 3, text: local layers with a window and every sixth global; norms around each branch.

Embeddings are scaled by sqrt(D), the feed-forward is GELU-gated. Local layers keep RoPE base
10 000 and no scaling. Norm weights in the file already hold the "+ 1" of the original.
"""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.gguf.meta import Metadata
from octavo.kv.state import AttentionSpec
from octavo.models import config as shape
from octavo.models.blocks import Block, attention, feed_forward, norm_weight
from octavo.models.config import Config, Rope
from octavo.models.decoder import Decoder
from octavo.models.rope import table
from octavo.models.source import WeightSource
from octavo.ops.weight import RopeTable, Weight

_LAYERS_OF_27B = 62


def read(metadata: Metadata) -> Config:
    config = shape.decoder(metadata)
    everywhere = config.layers[0]
    assert isinstance(everywhere, AttentionSpec), "decoder() describes attention layers"
    if config.n_layers == _LAYERS_OF_27B:  # scales by the width per head, not by the head's
        everywhere = replace(everywhere, scale=1 / math.sqrt(config.n_embd / config.n_heads))
    window = shape.whole(metadata, "attention.sliding_window", high=1 << 30)
    local = replace(everywhere, window=window)
    period = shape.whole(metadata, "attention.sliding_window_pattern", default=6)
    layers = [everywhere if (i + 1) % period == 0 else local for i in range(config.n_layers)]
    base = shape.positive(metadata, "rope.freq_base_swa", 10_000.0, above=1.0)
    return replace(
        config,
        layers=tuple(layers),
        embedding_scale=math.sqrt(config.n_embd),
        local_rope=Rope(n_dims=config.rope.n_dims, base=base),
    )


def build(config: Config, weights: WeightSource) -> Decoder:
    assert config.local_rope is not None, "read() sets the local layers' RoPE"
    everywhere, local = table(config.rope, weights), table(config.local_rope, weights)
    blocks = []
    for i, spec in enumerate(config.layers):
        assert isinstance(spec, AttentionSpec), "every layer attends"
        blocks.append(_block(config, weights, i, local if spec.window else everywhere))
    return Decoder(config, weights, blocks)


def _block(config: Config, weights: WeightSource, i: int, rope: RopeTable) -> Block:
    def norm(name: str) -> Weight:
        return norm_weight(weights, f"blk.{i}.{name}", config.n_embd)

    return Block(
        norm=norm("attn_norm"),
        mixer=attention(config, weights, i, rope, qk_norm=True),
        ffn_norm=norm("ffn_norm"),
        ffn=feed_forward(config, weights, i, kind="gelu"),
        eps=config.norm_eps,
        after_mixer=norm("post_attention_norm"),
        after_ffn=norm("post_ffw_norm"),
    )
