"""One choice laid out in bytes: a plan, whether it fits or not. The planner decides among them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from octavo.gguf.header import TensorInfo
from octavo.gguf.meta import Metadata
from octavo.kv.cache import pages_of
from octavo.models.config import Config
from octavo.plan import memory
from octavo.plan.hardware import Hardware
from octavo.plan.plan import Place, Placement, Plan, Video
from octavo.plan.wishes import Wishes
from octavo.record import dataclass

if TYPE_CHECKING:
    from octavo.plan.gpus import Gpu

# An agent's system prompt with its tools takes some 18 000 tokens, so less is no good default;
# more takes memory from everything else, and is there for the asking.
DEFAULT_CONTEXT_TOKENS = 32_768
LEAST_CONTEXT_TOKENS = 512
DEFAULT_BATCH_TOKENS = 512
DEFAULT_CACHE_FORMAT = "f16"
DEFAULT_DRAFT_TOKENS = 4
DEFAULT_SNAPSHOTS = 8
# Each guess and each snapshot holds a state in video memory, which experts use better.
CARD_DRAFT_TOKENS = 2
CARD_SNAPSHOTS = 4
# Larger pieces of a prompt bring the same experts over the link for more tokens.
CARD_BATCH_TOKENS = (4096, 2048, 1024, 512)
# Reading costs a start about 0.25 s a GB and makes each token about 3 % faster (huge pages). Up to
# this size that is repaid within a long answer; a larger copy would also push the file itself out
# of the system's cache, and the next start would wait for the disk.
READ_BYTES = 4 * 10**9
# Planning to the edge ends in swapping.
_RESERVE_BYTES = 512 << 20
_RESERVE_SHARE = 0.08
_SLACK_SHARE = 0.01
# Where the driver hands out main memory when a card is full, nothing fails: all becomes ten times
# slower. So a card is not filled as far there.
_SPILL_BYTES = 512 << 20
_SPILL_SHARE = 0.08
# Below two tokens' worth of experts a block, each one evicts what the next one needs.
_LEAST_TOKENS_OF_SLOTS = 2


class PlanFile(Protocol):
    """What is needed of `octavo.gguf.reader.GGUFFile`."""

    path: Path
    metadata: Metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...


@dataclass(frozen=True)
class Case:
    """One question to the planner."""

    file: PlanFile
    config: Config
    wishes: Wishes
    hardware: Hardware
    slow_formats: tuple[str, ...]

    @cached_property
    def tensors(self) -> list[TensorInfo]:
        return list(self.file.tensors.values())

    @cached_property
    def kinds(self) -> dict[str, int]:
        """Bytes of each kind of weights."""
        return memory.weight_bytes(self.tensors, self.config.n_layers)

    @cached_property
    def draft_experts(self) -> int:
        return memory.draft_expert_bytes(self.tensors, self.config.n_layers)

    @cached_property
    def read_bytes_per_token(self) -> int:
        return memory.read_bytes_per_token(self.tensors, self.config)

    @cached_property
    def n_expert_blocks(self) -> int:
        return len(memory.expert_blocks(self.tensors))

    @cached_property
    def expert_slot_bytes(self) -> int:
        n_experts = self.config.experts.n_experts if self.config.experts else 0
        return memory.expert_slot_bytes(self.tensors, n_experts) if n_experts else 0

    @property
    def gpu(self) -> Gpu | None:
        """The card with the most free memory."""
        return max(self.hardware.gpus, key=lambda gpu: gpu.free_bytes, default=None)

    @property
    def place(self) -> Place:
        """Where weights go if there is room."""
        is_small = self.hardware.has_huge_pages and sum(self.kinds.values()) <= READ_BYTES
        wish = self.wishes.weights or ("read" if is_small else "map")
        return "read" if wish == "read" else "map"

    @property
    def contexts(self) -> list[int]:
        """The wish, or what to try: the default and its halves."""
        if self.wishes.context is not None:
            return [self.wishes.context]
        most = min(self.config.context_length, DEFAULT_CONTEXT_TOKENS)
        halves = (most >> i for i in range(1, most.bit_length()))
        return [most, *(n for n in halves if n >= LEAST_CONTEXT_TOKENS)]


@dataclass(frozen=True)
class Choice:
    """What the planner varies."""

    placement: Placement
    weights: Place
    context: int
    sequences: int
    batch: int = DEFAULT_BATCH_TOKENS
    reason: str = ""  # of the placement
    cache_format: str | None = None  # None: the wish, or the default


def lay_out(case: Case, choice: Choice) -> Plan:
    """The plan with these choices. The expert pool gets what the card has left, or nothing."""
    config, wishes, hardware = case.config, case.wishes, case.hardware
    on_card = choice.placement != "cpu"
    cache_format = choice.cache_format or wishes.cache_format or DEFAULT_CACHE_FORMAT
    slot_bytes = memory.slot_bytes(config.layers)
    draft_tokens = _or(wishes.draft_tokens, CARD_DRAFT_TOKENS if on_card else DEFAULT_DRAFT_TOKENS)
    snapshots = _or(wishes.snapshots, CARD_SNAPSHOTS if on_card else DEFAULT_SNAPSHOTS)
    n_snapshots = snapshots if slot_bytes else 0
    # Each guess needs a slot for the state before it, so that it can be taken back.
    n_slots = choice.sequences * (1 + draft_tokens) + n_snapshots if slot_bytes else 0
    n_pages = choice.sequences * pages_of(choice.context)
    batch_tokens = min(_or(wishes.batch, choice.batch), choice.context)
    n_outputs = choice.sequences * (1 + draft_tokens)
    scratch = memory.card_scratch_bytes if on_card else memory.scratch_bytes
    cache_bytes = memory.cache_bytes(config.layers, cache_format, n_pages, n_slots=0)
    state_bytes = n_slots * slot_bytes
    scratch_bytes = scratch(config, batch_tokens, n_outputs)
    steps_bytes = cache_bytes + state_bytes + scratch_bytes
    return Plan(
        model=case.file.path.name,
        architecture=config.architecture,
        weights=choice.weights,
        weights_reason=_weights_reason(case, choice),
        weight_bytes=case.kinds,
        context=choice.context,
        context_reason=_context_reason(case, choice.context),
        known_context=config.context_length,
        sequences=choice.sequences,
        batch_tokens=batch_tokens,
        draft_tokens=draft_tokens,
        cache_format=cache_format,
        n_pages=n_pages,
        n_slots=n_slots,
        n_snapshots=n_snapshots,
        cache_bytes=cache_bytes,
        state_bytes=state_bytes,
        scratch_bytes=scratch_bytes,
        available_bytes=hardware.available_bytes,
        reserve_bytes=max(_RESERVE_BYTES, int(_RESERVE_SHARE * hardware.memory_bytes)),
        read_bytes_per_token=case.read_bytes_per_token,
        threads=_or(wishes.threads, hardware.n_threads),
        isa=hardware.isa,
        slow_formats=case.slow_formats,
        placement=choice.placement,
        placement_reason=choice.reason,
        video=_video(case, choice, steps_bytes, bool(draft_tokens)) if on_card else None,
    )


def spill_margin_bytes(total_bytes: int) -> int:
    """What has to stay free of a card so that nothing of it is moved to main memory."""
    return max(_SPILL_BYTES, int(_SPILL_SHARE * total_bytes))


def _slack_bytes(gpu: Gpu, limit_bytes: int, *, may_spill: bool) -> int:
    """What is left free of `limit_bytes`; with what lies above them it is enough not to spill."""
    slack = int(_SLACK_SHARE * limit_bytes)
    if not may_spill:
        return slack
    margin = spill_margin_bytes(gpu.total_bytes)
    return max(slack, margin - (gpu.free_bytes - limit_bytes))


def _video(case: Case, choice: Choice, steps_bytes: int, drafts: bool) -> Video:
    """The card's share, next to `steps_bytes` of cache, states and scratch."""
    gpu, config = case.gpu, case.config
    assert gpu is not None
    is_whole = choice.placement == "gpu"
    on_card = memory.weights_on_card(
        case.kinds, case.draft_experts, all_experts=is_whole, drafts=drafts
    )
    left = memory.weights_in_memory(case.kinds, on_card)
    n_experts = config.experts.n_experts if config.experts and not is_whole else 0
    slot_bytes = case.expert_slot_bytes if n_experts else 0
    n_used = config.experts.rule.n_used if config.experts else 0
    n_blocks = case.n_expert_blocks if n_experts else 0
    if not drafts and case.draft_experts:
        n_blocks -= config.n_mtp
    limit = min(gpu.free_bytes, case.wishes.video_bytes or gpu.free_bytes)
    ring_bytes = min(memory.RING_EXPERTS, n_experts) * slot_bytes
    slack_bytes = _slack_bytes(gpu, limit, may_spill=case.hardware.pin_limit_bytes is not None)
    taken = sum(on_card.values()) + steps_bytes + ring_bytes + gpu.context_bytes + slack_bytes
    n_slots = max(0, limit - taken) // slot_bytes if slot_bytes else 0
    pinned = left.get("experts", 0) + (case.draft_experts if drafts and not is_whole else 0)
    if choice.weights == "map":
        pinned = 0  # pages of a file are not ours to pin
    return Video(
        gpu=gpu.name,
        total_bytes=gpu.total_bytes,
        other_bytes=gpu.total_bytes - gpu.free_bytes,
        other_programs=gpu.programs,
        limit_bytes=limit,
        context_bytes=gpu.context_bytes,
        slack_bytes=slack_bytes,
        weight_bytes=on_card,
        left_bytes=left,
        pinned_bytes=min(pinned, _or(case.hardware.pin_limit_bytes, pinned)),
        ring_bytes=ring_bytes,
        host_scratch_bytes=memory.host_scratch_bytes(config, memory.SHARED_TOKENS)
        if n_experts
        else 0,
        n_slots=min(n_slots, n_blocks * n_experts),
        slot_bytes=slot_bytes,
        n_blocks=n_blocks,
        n_experts=n_experts,
        least_slots=_LEAST_TOKENS_OF_SLOTS * n_used * n_blocks,
        experts_stay=case.wishes.experts == "stay",
    )


def _or(wish: int | None, default: int) -> int:
    return default if wish is None else wish


def _weights_reason(case: Case, choice: Choice) -> str:
    if case.wishes.weights:
        return "as asked"
    if choice.placement == "gpu":
        return "read once, into video memory"
    if choice.placement == "split":
        if choice.weights == "read":
            return "a copy that the card can fetch from"
        return "no room for a copy; the system brings from the file what is needed"
    if choice.weights == "read":
        return "small; a copy in huge pages makes tokens faster"
    if not case.hardware.has_huge_pages:
        return "this system has no huge pages, so a copy would gain nothing"
    if case.place == "read":
        return "no room for a copy; the system brings from the file what is needed"
    return f"above {memory.text(READ_BYTES)} a copy would delay the start"


def _context_reason(case: Case, context: int) -> str:
    known = case.config.context_length
    if case.wishes.context is not None:
        return f"as asked; the model knows {known:,}"
    if context == known:
        return "all that the model knows"
    if context == DEFAULT_CONTEXT_TOKENS:
        return f"the default; the model knows {known:,}"
    return f"what fits; the model knows {known:,}"
