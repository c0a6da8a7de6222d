"""What a model file says of its shape: read from the metadata, checked, frozen.

Needs no weights, so the planner reads it from a header alone. The keys are GGUF's.
"""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from octavo.errors import FileFormatError, UnsupportedError
from octavo.gguf.meta import Metadata, StringArray
from octavo.kv.state import AttentionSpec, LayerSpec, RecurrentSpec
from octavo.ops.weight import RouteRule
from octavo.record import dataclass

# Far above any model; below what a damaged file could make us allocate.
_MAX_LAYERS = 1000
_MAX_WIDTH = 1 << 20
_MAX_TOKENS = 1 << 24

_POOLING = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}


@dataclass(frozen=True)
class Rope:
    """Rotary positions: `n_dims` of each head turn; YaRN and linear scaling as in the file."""

    n_dims: int
    base: float
    pairing: str = "neox"
    scaling: str = "none"  # or "linear", "yarn"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0


@dataclass(frozen=True)
class Experts:
    """Routed experts of each block, and the shared one (`n_ff_shared` 0: none)."""

    n_experts: int
    n_ff: int
    n_ff_shared: int
    rule: RouteRule


@dataclass(frozen=True)
class Config:
    """The shape of one model.

    `layers` says what each block keeps per sequence, and so what kind of block it is: the trunk's
    `n_layers`, then the `n_mtp` draft blocks.
    """

    architecture: str
    n_layers: int
    n_mtp: int
    n_embd: int
    n_vocab: int
    context_length: int
    n_heads: int
    n_ff: int  # dense feed-forward width; 0 where every block has experts
    norm_eps: float
    rope: Rope
    layers: tuple[LayerSpec, ...]
    experts: Experts | None = None
    embedding_scale: float = 1.0
    logit_softcap: float = 0.0
    pooling: str = ""  # "mean", "cls" or "last" for embedding models; else ""
    local_rope: Rope | None = field(default=None)  # of layers with a window, where it differs


def decoder(metadata: Metadata, pairing: str = "neox") -> Config:
    """The keys that the decoder-only families share; every layer attends to everything.

    Raises:
        FileFormatError: a key is missing, of the wrong type, or out of range.
        UnsupportedError: layers that differ in heads or width, or an unknown RoPE scaling.
    """
    n_layers = whole(metadata, "block_count", high=_MAX_LAYERS)
    n_embd = whole(metadata, "embedding_length")
    n_heads = uniform(metadata, "attention.head_count", n_layers)
    n_kv_heads = uniform(metadata, "attention.head_count_kv", n_layers, default=n_heads)
    if n_heads % n_kv_heads:
        raise FileFormatError(f"{n_heads} attention heads cannot share {n_kv_heads} key heads")
    key_dim = whole(metadata, "attention.key_length", default=n_embd // n_heads)
    value_dim = whole(metadata, "attention.value_length", default=key_dim)
    spec = AttentionSpec(n_kv_heads, key_dim, value_dim, scale=1 / math.sqrt(key_dim))
    experts = _experts(metadata)
    return Config(
        architecture=metadata.architecture,
        n_layers=n_layers,
        n_mtp=0,
        n_embd=n_embd,
        n_vocab=_vocabulary(metadata),
        context_length=whole(metadata, "context_length", high=1 << 30),
        n_heads=n_heads,
        n_ff=0 if experts else uniform(metadata, "feed_forward_length", n_layers),
        norm_eps=metadata.arch("attention.layer_norm_rms_epsilon", float),
        rope=_rope(metadata, key_dim, pairing),
        layers=(spec,) * n_layers,
        experts=experts,
        logit_softcap=metadata.arch("final_logit_softcapping", float, 0.0),
        pooling=_pooling(metadata),
    )


def whole(
    metadata: Metadata,
    suffix: str,
    default: int | None = None,
    low: int = 1,
    high: int = _MAX_WIDTH,
) -> int:
    """A whole number of the architecture, within bounds.

    Raises:
        FileFormatError: missing without a default, of another type, or out of bounds.
    """
    required = default is None or f"{metadata.architecture}.{suffix}" in metadata
    value = metadata.arch(suffix, int) if required else default
    assert value is not None
    if not low <= value <= high:
        raise FileFormatError(
            f"{metadata.architecture}.{suffix} is {value}, expected {low} to {high}",
            "The file is damaged or not a language model.",
        )
    return value


def uniform(metadata: Metadata, suffix: str, n_layers: int, default: int = 0) -> int:
    """A whole number that may be stored per layer; all layers must agree.

    Raises:
        FileFormatError: missing (with default 0), of another type, or out of bounds.
        UnsupportedError: layers differ.
    """
    key = f"{metadata.architecture}.{suffix}"
    if key not in metadata:
        return whole(metadata, suffix, default or None)
    values = set(metadata.per_layer(suffix, int, n_layers, default))
    if len(values) != 1:
        raise UnsupportedError(
            f"{key} differs between layers ({min(values)} to {max(values)})",
            "This version runs models whose layers have one shape.",
        )
    value = values.pop()
    if not 1 <= value <= _MAX_WIDTH:
        raise FileFormatError(f"{key} is {value}, expected 1 to {_MAX_WIDTH}")
    return value


def hybrid_layers(
    metadata: Metadata, attention: AttentionSpec, n_mtp: int, tiled: bool
) -> tuple[LayerSpec, ...]:
    """Specs of all `block_count` blocks of a gated delta-net model.

    Every `full_attention_interval`-th block attends, or those that `attention.recurrent_layers`
    leaves out; the `n_mtp` draft blocks at the end always attend.

    Raises:
        FileFormatError: sizes that do not fit each other.
    """
    n_trunk = whole(metadata, "block_count", high=_MAX_LAYERS) - n_mtp
    interval = whole(metadata, "full_attention_interval", default=4)
    is_recurrent = [(i + 1) % interval != 0 for i in range(n_trunk)]
    if f"{metadata.architecture}.attention.recurrent_layers" in metadata:
        stored = metadata.arch("attention.recurrent_layers", np.ndarray)
        if len(stored) < n_trunk:
            raise FileFormatError(
                f"attention.recurrent_layers names {len(stored)} layers, expected {n_trunk}"
            )
        is_recurrent = [bool(flag) for flag in stored[:n_trunk]]
    recurrent = _recurrent(metadata, tiled)
    trunk = tuple(recurrent if flag else attention for flag in is_recurrent)
    return trunk + (attention,) * n_mtp


def mtp_blocks(metadata: Metadata) -> int:
    """Draft blocks at the end of `block_count`: none or one.

    Raises:
        UnsupportedError: the file has more.
    """
    n_mtp = whole(metadata, "nextn_predict_layers", default=0, low=0)
    if n_mtp > 1:
        raise UnsupportedError(
            f"The file has {n_mtp} draft blocks", "This version runs models with one at most."
        )
    if n_mtp == whole(metadata, "block_count", high=_MAX_LAYERS):
        raise UnsupportedError(
            "The file holds a draft block without its model", "Open the model's main file."
        )
    return n_mtp


def _recurrent(metadata: Metadata, tiled: bool) -> RecurrentSpec:
    n_value_heads = whole(metadata, "ssm.time_step_rank")
    n_key_heads = whole(metadata, "ssm.group_count")
    inner = whole(metadata, "ssm.inner_size")
    if inner % n_value_heads or n_value_heads % n_key_heads:
        raise FileFormatError(
            f"Delta-net sizes do not fit: inner {inner}, value heads {n_value_heads}, "
            f"key heads {n_key_heads}; each must be a multiple of the next"
        )
    return RecurrentSpec(
        n_key_heads=n_key_heads,
        n_value_heads=n_value_heads,
        key_dim=whole(metadata, "ssm.state_size"),
        value_dim=inner // n_value_heads,
        conv_kernel=whole(metadata, "ssm.conv_kernel", low=2, high=64),
        tiled=tiled,
    )


def _experts(metadata: Metadata) -> Experts | None:
    n_experts = whole(metadata, "expert_count", default=0, low=0)
    if n_experts == 0:
        return None
    n_used = whole(metadata, "expert_used_count", high=n_experts)
    # Mixtral files give the width of an expert as that of the dense layer it replaced.
    dense = whole(metadata, "feed_forward_length", default=0, low=0)
    return Experts(
        n_experts=n_experts,
        n_ff=whole(metadata, "expert_feed_forward_length", default=dense),
        n_ff_shared=whole(metadata, "expert_shared_feed_forward_length", default=0, low=0),
        # A stored scale of 0 means that none was set.
        rule=RouteRule(n_used, scale=metadata.arch("expert_weights_scale", float, 1.0) or 1.0),
    )


def _rope(metadata: Metadata, key_dim: int, pairing: str) -> Rope:
    n_dims = whole(metadata, "rope.dimension_count", default=key_dim, high=key_dim)
    scaling = metadata.arch("rope.scaling.type", str, "none")
    if scaling not in ("none", "linear", "yarn"):
        raise UnsupportedError(
            f"RoPE scaling {scaling!r} is not supported", "Supported are: none, linear, yarn."
        )
    if n_dims % 2:
        raise FileFormatError(f"RoPE over {n_dims} dimensions; an even number is expected")
    return Rope(
        n_dims=n_dims,
        base=positive(metadata, "rope.freq_base", 10_000.0, above=1.0),
        pairing=pairing,
        scaling=scaling,
        factor=positive(metadata, "rope.scaling.factor", 1.0),
        original_context=whole(
            metadata,
            "rope.scaling.original_context_length",
            default=whole(metadata, "context_length", high=1 << 30),
            high=1 << 30,
        ),
        beta_fast=positive(metadata, "rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=positive(metadata, "rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=positive(metadata, "rope.scaling.attn_factor", 1.0),
    )


def positive(metadata: Metadata, suffix: str, default: float, above: float = 0.0) -> float:
    """A finite number of the architecture, greater than `above`.

    Raises:
        FileFormatError: of another type, or out of range.
    """
    value = metadata.arch(suffix, float, default)
    if not (value > above and math.isfinite(value)):
        key = f"{metadata.architecture}.{suffix}"
        raise FileFormatError(f"{key} is {value}, expected above {above:g}")
    return value


def _vocabulary(metadata: Metadata) -> int:
    if "tokenizer.ggml.tokens" in metadata:
        n_vocab = len(metadata.get("tokenizer.ggml.tokens", StringArray))
    else:
        n_vocab = metadata.arch("vocab_size", int)
    if not 1 <= n_vocab <= _MAX_TOKENS:
        raise FileFormatError(f"A vocabulary of {n_vocab} tokens; 1 to {_MAX_TOKENS} expected")
    return n_vocab


def _pooling(metadata: Metadata) -> str:
    number = metadata.arch("pooling_type", int, 0)
    if number not in _POOLING:
        raise UnsupportedError(
            f"pooling_type {number} is not supported", "Supported are 1 (mean), 2 (cls), 3 (last)."
        )
    return "" if number == 0 else _POOLING[number]
