"""How many bytes things take: pure functions of shapes. All results are bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octavo import models
from octavo.gguf.header import TensorInfo
from octavo.kv import formats
from octavo.kv.state import AttentionSpec, LayerSpec, RecurrentSpec
from octavo.models.config import Config

FLOAT_BYTES = 4


def weight_bytes(tensors: Iterable[TensorInfo], n_layers: int) -> dict[str, int]:
    """Of each `models.Kind` that the file has; `n_layers` is `Config.n_layers`."""
    found: dict[str, int] = {}
    for tensor in tensors:
        kind = models.kind(tensor.name, n_layers)
        found[kind] = found.get(kind, 0) + tensor.n_bytes
    return found


def read_bytes_per_token(tensors: Sequence[TensorInfo], config: Config) -> int:
    """Weights that one decoded token reads: not the embedding, and of the experts those used.

    The draft blocks are not counted. Divided by the memory's bandwidth it is the least time a
    token can take at an empty cache.
    """
    kinds = weight_bytes(tensors, config.n_layers)
    head = kinds.get("head") or kinds.get("embedding", 0)  # a tied head is the embedding
    experts = kinds.get("experts", 0)
    if config.experts:
        experts = experts * config.experts.rule.n_used // config.experts.n_experts
    return kinds.get("trunk", 0) + head + experts


def page_bytes(specs: Iterable[LayerSpec], format: str) -> int:
    """Of one page of all attention layers."""
    return sum(formats.page_bytes(format, s) for s in specs if isinstance(s, AttentionSpec))


def slot_bytes(specs: Iterable[LayerSpec]) -> int:
    """Of one recurrent state of all recurrent layers."""
    return sum(s.n_bytes for s in specs if isinstance(s, RecurrentSpec))


def cache_bytes(specs: Sequence[LayerSpec], format: str, n_pages: int, n_slots: int) -> int:
    """What `Cache(specs, n_pages=..., n_slots=..., format=...)` allocates: `Cache.n_bytes`."""
    return (n_pages + 1) * page_bytes(specs, format) + n_slots * slot_bytes(specs)


def scratch_bytes(config: Config, n_tokens: int, n_outputs: int) -> int:
    """Activations of a step of `n_tokens` tokens that asks for `n_outputs` rows of logits.

    An upper estimate: the residual stream and its copies, the widest block's intermediate
    results with their quantised copies, and the logits twice (the sampler works on a copy).
    """
    experts = config.experts
    feed_forward = 2 * config.n_ff
    if experts:
        feed_forward = experts.rule.n_used * (2 * experts.n_ff + config.n_embd)
        feed_forward += 2 * experts.n_ff_shared
    widest = max(feed_forward, *(_mixer_width(spec, config.n_heads) for spec in config.layers))
    per_token = 6 * config.n_embd + 2 * widest
    return FLOAT_BYTES * (n_tokens * per_token + 2 * n_outputs * config.n_vocab)


def _mixer_width(spec: LayerSpec, n_heads: int) -> int:
    """Floats a token has between a block's projections."""
    if isinstance(spec, RecurrentSpec):
        return 2 * spec.n_channels + 2 * spec.n_value_heads * spec.value_dim
    heads = n_heads * (2 * spec.key_dim + spec.value_dim)  # queries, their gate, results
    return heads + spec.n_kv_heads * (spec.key_dim + spec.value_dim)


def text(n_bytes: float) -> str:
    """A size for people, in decimal units as disks and downloads count: "21.3 GB"."""
    for unit_bytes, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= unit_bytes:
            return f"{n_bytes / unit_bytes:.1f} {unit}"
    return f"{n_bytes:.0f} B"
