"""The plan itself: a frozen record of what lives where, printable for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Literal

from octavo.record import dataclass

if TYPE_CHECKING:
    from octavo.plan.gpus import Program

Place = Literal["read", "map"]
Placement = Literal["cpu", "split", "gpu"]

COUNTED_TOKENS = 1000  # of which `Thinking` says the price


@dataclass(frozen=True)
class Video:
    """What a plan takes of one card, besides cache, states and scratch, which all live there."""

    gpu: str
    total_bytes: int  # of the card
    other_bytes: int  # held by other programs and the driver
    other_programs: tuple[Program, ...]
    limit_bytes: int  # what may be used: what is free, or less where that was asked for
    context_bytes: int  # CUDA's own
    slack_bytes: int  # lost to alignment and to what other programs take later
    weight_bytes: Mapping[str, int]  # by kind
    left_bytes: Mapping[str, int]  # by kind: weights that stay in main memory
    pinned_bytes: int  # of these, pinned for copies at full speed
    ring_bytes: int  # experts on their way while a prompt is read
    host_scratch_bytes: int  # in main memory: activations of experts computed there
    n_slots: int  # places for experts
    slot_bytes: int
    n_blocks: int  # with experts, draft blocks too
    n_experts: int  # of each
    least_slots: int  # a smaller pool thrashes
    experts_stay: bool = False  # who has a slot never changes

    @property
    def pool_bytes(self) -> int:
        return self.n_slots * self.slot_bytes

    @property
    def pool_share(self) -> float:
        """Of all experts, those that have a place on the card."""
        n_all = self.n_blocks * self.n_experts
        return self.n_slots / n_all if n_all else 0.0


@dataclass(frozen=True)
class Expected:
    """Speeds that follow from bytes, products and rates; docs/plan.md has the formulas."""

    decode: float  # tokens a second at an empty cache
    decode_full: float  # the same at a full context
    prefill: float | None  # prompt tokens a second in full pieces; None: a rate is not known
    hit_share: float | None  # of routed experts found on the card; None: no pool
    basis: tuple[str, ...]  # the rates, each with its origin


@dataclass(frozen=True)
class Thinking:
    """What becomes of the thinking of earlier turns, and the price of 1,000 tokens.

    A server keeps it in the prompts of later turns if the template can. Else the template drops
    it at each new question, and what came since the one before has to be read again without it.
    """

    is_kept: bool
    cache_bytes: int  # that kept ones take
    read_seconds: float | None  # to read them again as a prompt; None: no speed is known


@dataclass(frozen=True)
class Plan:
    """What lives where, and how many bytes each. All of it is allocated when the model loads."""

    model: str
    architecture: str
    weights: Place  # read: copied into memory; map: the system brings pages of the file
    weights_reason: str
    weight_bytes: Mapping[str, int]  # by kind: trunk, embedding, head, experts, mtp
    context: int  # tokens of prompt and answer of one sequence
    context_reason: str
    known_context: int  # the longest that the model was trained for
    sequences: int  # at once, each with the whole context
    batch_tokens: int  # most prompt tokens of one step
    draft_tokens: int  # most tokens guessed ahead
    cache_format: str
    n_pages: int  # of the cache, besides the null page
    n_slots: int  # recurrent states, snapshots included
    n_snapshots: int
    cache_bytes: int  # attention pages
    state_bytes: int  # recurrent states
    scratch_bytes: int
    available_bytes: int  # main memory, before loading
    reserve_bytes: int  # of these, left to the rest of the system
    read_bytes_per_token: int  # weights that a decoded token reads
    threads: int
    isa: str
    slow_formats: tuple[str, ...]  # block formats in the file without a fast kernel
    placement: Placement = "cpu"
    placement_reason: str = ""
    video: Video | None = None  # None: everything is in main memory
    contexts: Mapping[str, int] = field(default_factory=dict)  # cache format -> most that fits
    expected: Expected | None = None  # None: speeds of this machine are not known
    thinking: Thinking | None = None  # None: the model does not think, or nobody asked

    @property
    def prefix_bytes(self) -> int:
        """The budget for kept prefixes: they live in what running sequences leave free."""
        return self.cache_bytes + self.n_snapshots * self._slot_bytes

    @property
    def own_bytes(self) -> int:
        """Main memory that only this program can use: everything but mapped weights."""
        return self.total_bytes - (self.host_weight_bytes if self.weights == "map" else 0)

    @property
    def file_bytes(self) -> int:
        """All weights, wherever they live."""
        return sum(self.weight_bytes.values())

    @property
    def host_weight_bytes(self) -> int:
        """Weights in main memory."""
        return self.file_bytes if self.video is None else sum(self.video.left_bytes.values())

    @property
    def total_bytes(self) -> int:
        """Main memory in all."""
        if self.video is not None:
            return self.host_weight_bytes + self.video.host_scratch_bytes
        return self.file_bytes + self.cache_bytes + self.state_bytes + self.scratch_bytes

    @property
    def room_bytes(self) -> int:
        """What this program may use of main memory."""
        return max(0, self.available_bytes - self.reserve_bytes)

    @property
    def video_total_bytes(self) -> int:
        """Video memory in all, CUDA's context and the slack included."""
        if self.video is None:
            return 0
        own = sum(self.video.weight_bytes.values()) + self.video.ring_bytes + self.video.pool_bytes
        steps = self.cache_bytes + self.state_bytes + self.scratch_bytes
        return own + steps + self.video.context_bytes + self.video.slack_bytes

    @property
    def fits(self) -> bool:
        """Whether everything stays where it is; mapped weights that do not come from disk."""
        return self.total_bytes <= self.room_bytes and self.fits_card

    @property
    def fits_card(self) -> bool:
        """Whether video memory is enough, with the least pool that works well."""
        return self.video is None or (
            self.video_total_bytes <= self.video.limit_bytes
            and self.video.n_slots >= self.video.least_slots
        )

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        sums = "prefix_bytes", "own_bytes", "total_bytes", "room_bytes", "video_total_bytes", "fits"
        return asdict(self) | {name: getattr(self, name) for name in sums}

    def table(self) -> str:
        """For people: one line each, sizes aligned."""
        from octavo.plan.table import table

        return table(self)

    @property
    def _slot_bytes(self) -> int:
        return self.state_bytes // self.n_slots if self.n_slots else 0
