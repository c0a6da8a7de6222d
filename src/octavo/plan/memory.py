"""How many bytes things take: pure functions of shapes. All results are bytes.

Where weights live, by placement (the embedding of a tied head is the head):

| kind | cpu | split | gpu |
|---|---|---|---|
| trunk, head, draft blocks | memory | card | card |
| embedding | memory | memory | card |
| experts, those of draft blocks too | memory | memory, a pool of them on the card | card |

Cache, states and scratch live where the trunk lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from octavo import models
from octavo.gguf.header import TensorInfo
from octavo.kv import formats
from octavo.kv.state import PAGE_TOKENS, AttentionSpec, LayerSpec, RecurrentSpec
from octavo.models.config import Config
from octavo.ops.weight import slot_offsets

FLOAT_BYTES = 4
HALF_BYTES = 2
CHUNK_TOKENS = 64  # of the delta rule on the card
SHARED_TOKENS = 1024  # of a split's steps, the longest in which the processor computes experts
RING_EXPERTS = 128  # on their way to the card while a prompt is read: four groups of 32


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


def draft_expert_bytes(tensors: Iterable[TensorInfo], n_layers: int) -> int:
    """Routed experts of the draft blocks, a part of the kind "mtp"."""
    return sum(
        tensor.n_bytes
        for tensor in tensors
        if _is_experts(tensor) and models.kind(tensor.name, n_layers) == "mtp"
    )


def expert_blocks(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    """Bytes of the routed experts of each block that has some, draft blocks too."""
    blocks: dict[str, int] = {}
    for tensor in tensors:
        if _is_experts(tensor):
            block = tensor.name.partition(".ffn")[0]
            blocks[block] = blocks.get(block, 0) + tensor.n_bytes
    return blocks


def expert_slot_bytes(tensors: Iterable[TensorInfo], n_experts: int) -> int:
    """A place for any expert: gate, up and down of the largest one, aligned. 0: no experts."""
    sizes: dict[str, list[int]] = {}
    # In the order in which they lie in a slot, whatever that of the file.
    for tensor in sorted(filter(_is_experts, tensors), key=_place_in_slot):
        block = tensor.name.partition(".ffn")[0]
        sizes.setdefault(block, []).append(tensor.n_bytes // n_experts)
    return max((slot_offsets(own)[-1] for own in sizes.values()), default=0)


def _place_in_slot(tensor: TensorInfo) -> int:
    return next(i for i, part in enumerate(("gate", "up", "down")) if part in tensor.name)


def stays(name: str, n_layers: int, left: Mapping[str, int], *, drafts: bool) -> bool:
    """Whether a tensor has its place in main memory; `left` as from `weights_in_memory`."""
    kind = models.kind(name, n_layers)
    is_draft_trunk = kind == "mtp" and drafts and "_exps." not in name
    return kind in left and not is_draft_trunk


def _is_experts(tensor: TensorInfo) -> bool:
    return "_exps." in tensor.name


def weights_on_card(
    kinds: Mapping[str, int], draft_experts: int, *, all_experts: bool, drafts: bool
) -> dict[str, int]:
    """Of each kind, what goes to the card; `kinds` as from `weight_bytes`.

    `all_experts` is the placement "gpu", else "split". Without `drafts` the draft blocks stay in
    memory. A tied head needs the embedding on the card in either case.
    """
    found = {"trunk": kinds.get("trunk", 0), "head": kinds.get("head", 0)}
    if all_experts or not found["head"]:
        found["embedding"] = kinds.get("embedding", 0)
    if all_experts:
        found["experts"] = kinds.get("experts", 0)
    if drafts:
        found["mtp"] = kinds.get("mtp", 0) - (0 if all_experts else draft_experts)
    return {kind: n for kind, n in found.items() if n}


def weights_in_memory(kinds: Mapping[str, int], on_card: Mapping[str, int]) -> dict[str, int]:
    """Of each kind, what stays in main memory when `on_card` is on the card."""
    found = {kind: n - on_card.get(kind, 0) for kind, n in kinds.items()}
    return {kind: n for kind, n in found.items() if n}


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


def card_scratch_bytes(config: Config, n_tokens: int, n_outputs: int) -> int:
    """Activations of a step on the card, as `octavo.ops.gpu` makes them for a piece of a prompt.

    Of each token: the residual stream with its copies, and the larger of a block's two parts, the
    mixer or the feed-forward; then the logits, of which the sampler has a copy.
    """
    experts = config.experts
    hidden, rows = 3 * config.n_ff, config.n_embd
    if experts:
        hidden = experts.rule.n_used * experts.n_ff + 2 * experts.n_ff_shared
        rows = (experts.rule.n_used + 1) * config.n_embd
    widest = max(
        HALF_BYTES * (hidden + rows) + FLOAT_BYTES * config.n_embd,
        *(_card_mixer_bytes(spec, config.n_heads) for spec in config.layers),
    )
    per_token = (4 * FLOAT_BYTES + HALF_BYTES) * config.n_embd + widest
    return n_tokens * per_token + 2 * FLOAT_BYTES * n_outputs * config.n_vocab


def _card_mixer_bytes(spec: LayerSpec, n_heads: int) -> int:
    """Of a token: projections and results in floats, the delta rule's parts in halves."""
    if not isinstance(spec, RecurrentSpec):
        return FLOAT_BYTES * _mixer_width(spec, n_heads)
    values = spec.n_value_heads * spec.value_dim
    keys = spec.n_value_heads * spec.key_dim
    floats = spec.n_channels + 2 * values
    state = keys * spec.value_dim // CHUNK_TOKENS  # one at the beginning of each chunk
    return FLOAT_BYTES * floats + HALF_BYTES * (spec.n_channels + values + keys + state)


def host_scratch_bytes(config: Config, n_tokens: int) -> int:
    """Activations of the experts that the processor computes in a split step."""
    if config.experts is None:
        return 0
    routed = config.experts.rule.n_used * (2 * config.experts.n_ff + config.n_embd)
    return FLOAT_BYTES * n_tokens * (routed + 2 * config.n_embd)


def cached_bytes_per_token(specs: Iterable[LayerSpec], format: str, depth: int) -> int:
    """What one decoded token reads and writes of cache and states behind `depth` tokens."""
    n_bytes = 0
    for spec in specs:
        if isinstance(spec, AttentionSpec):
            seen = min(depth, spec.window) if spec.window else depth
            n_bytes += seen * formats.page_bytes(format, spec) // PAGE_TOKENS
        else:
            n_bytes += 2 * spec.n_bytes  # read and written
    return n_bytes


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
