"""From a model's header, the machine and the user's wishes to a plan.

Wishes are honoured or refused with numbers, never changed. What was not wished for is chosen so
that it fits: first fewer sequences, then a shorter context, then weights that are mapped and may
not all stay in memory. Each choice has its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from octavo import models
from octavo.errors import MemoryPlanError, SettingError
from octavo.gguf.header import TensorInfo
from octavo.gguf.meta import Metadata
from octavo.kv.cache import pages_of
from octavo.kv.state import PAGE_TOKENS
from octavo.models.config import Config
from octavo.plan import memory
from octavo.plan.hardware import Hardware
from octavo.plan.plan import Place, Plan

# An agent's system prompt with its tools takes some 18 000 tokens, so less is no good default;
# more takes memory from everything else, and is there for the asking.
DEFAULT_CONTEXT_TOKENS = 32_768
USEFUL_CONTEXT_TOKENS = 8_192  # mapped weights are chosen before less than this
LEAST_CONTEXT_TOKENS = 512
DEFAULT_SEQUENCES = (4, 2, 1)  # tried in this order
DEFAULT_BATCH_TOKENS = 512
DEFAULT_CACHE_FORMAT = "f16"
DEFAULT_DRAFT_TOKENS = 4
DEFAULT_SNAPSHOTS = 8
# Reading costs a start about 0.25 s a GB and makes each token about 3 % faster (huge pages). Up to
# this size that is repaid within a long answer; a larger copy would also push the file itself out
# of the system's cache, and the next start would wait for the disk.
READ_BYTES = 4 * 10**9
# Planning to the edge ends in swapping.
_RESERVE_BYTES = 512 << 20
_RESERVE_SHARE = 0.08


class PlanFile(Protocol):
    """What is needed of `octavo.gguf.reader.GGUFFile`."""

    path: Path
    metadata: Metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...


@dataclass(frozen=True)
class Wishes:
    """What the user asks for; None: the planner chooses.

    Raises:
        SettingError: a number is too low, or `weights` is another word.
    """

    context: int | None = None  # tokens of prompt and answer of one sequence
    sequences: int | None = None  # at once
    batch: int | None = None  # most prompt tokens of one step
    cache_format: str | None = None
    weights: str | None = None  # "read" or "map"
    draft_tokens: int | None = None  # most tokens guessed ahead; 0: no speculation
    snapshots: int | None = None  # recurrent states kept to go back to
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.weights not in (None, "read", "map"):
            raise SettingError(f"weights is {self.weights!r}", "Use read or map.")
        for name in ("context", "sequences", "batch", "threads", "draft_tokens", "snapshots"):
            value, low = getattr(self, name), 0 if name in ("draft_tokens", "snapshots") else 1
            if value is not None and value < low:
                raise SettingError(f"{name} is {value}", f"Use a whole number from {low}.")


def make_plan(
    file: PlanFile,
    wishes: Wishes,
    hardware: Hardware,
    fast_formats: Collection[str] | None = None,
) -> Plan:
    """Decide. `fast_formats` are the block formats with fast kernels; None: do not compare.

    Raises:
        MemoryPlanError: wishes, or the least that a model needs, do not fit; says the numbers.
        SettingError: a context beyond the model's.
        UnsupportedError, FileFormatError: the model cannot be run, or the cache format is none.
    """
    config = models.read_config(file.metadata)
    if wishes.context is not None and wishes.context > config.context_length:
        raise SettingError(
            f"A context of {wishes.context:,} tokens was asked for; the model knows "
            f"{config.context_length:,}",
            f"Use at most {config.context_length}.",
        )
    slow = () if fast_formats is None else _slow_formats(file.tensors.values(), fast_formats)
    case = _Case(file, config, wishes, hardware, slow)
    plan = _comfortable(case) or _tight(case)
    if plan is None:
        raise _refusal(case)
    return plan


@dataclass(frozen=True)
class _Case:
    """One question to the planner."""

    file: PlanFile
    config: Config
    wishes: Wishes
    hardware: Hardware
    slow_formats: tuple[str, ...]

    @property
    def place(self) -> Place:
        """Where weights go if there is room."""
        n_bytes = sum(tensor.n_bytes for tensor in self.file.tensors.values())
        is_small = self.hardware.has_huge_pages and n_bytes <= READ_BYTES
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


def _comfortable(case: _Case) -> Plan | None:
    """The best plan in which everything stays in memory."""
    wishes = case.wishes
    for context in case.contexts:
        if context < min(USEFUL_CONTEXT_TOKENS, case.contexts[0]) and not wishes.weights:
            break
        for sequences in (wishes.sequences,) if wishes.sequences else DEFAULT_SEQUENCES:
            plan = _plan(case, case.place, context, sequences)
            if plan.fits:
                return plan
    return None


def _tight(case: _Case) -> Plan | None:
    """Mapped weights, of which the system may have to read some again and again."""
    if case.wishes.weights == "read":
        return None
    for context in case.contexts:
        plan = _plan(case, "map", context, case.wishes.sequences or 1)
        if plan.own_bytes <= plan.room_bytes:
            return plan
    return None


def _plan(case: _Case, weights: Place, context: int, sequences: int) -> Plan:
    """The plan with these choices, whether it fits or not."""
    config, wishes, hardware = case.config, case.wishes, case.hardware
    tensors = list(case.file.tensors.values())
    cache_format = wishes.cache_format or DEFAULT_CACHE_FORMAT
    slot_bytes = memory.slot_bytes(config.layers)
    draft_tokens = _or(wishes.draft_tokens, DEFAULT_DRAFT_TOKENS)
    n_snapshots = _or(wishes.snapshots, DEFAULT_SNAPSHOTS) if slot_bytes else 0
    # Each guess needs a slot for the state before it, so that it can be taken back.
    n_slots = sequences * (1 + draft_tokens) + n_snapshots if slot_bytes else 0
    n_pages = sequences * pages_of(context)
    batch_tokens = min(_or(wishes.batch, DEFAULT_BATCH_TOKENS), context)
    n_outputs = sequences * (1 + draft_tokens)
    return Plan(
        model=case.file.path.name,
        architecture=config.architecture,
        weights=weights,
        weights_reason=_weights_reason(case, weights),
        weight_bytes=memory.weight_bytes(tensors, config.n_layers),
        context=context,
        context_reason=_context_reason(case, context),
        sequences=sequences,
        batch_tokens=batch_tokens,
        draft_tokens=draft_tokens,
        cache_format=cache_format,
        n_pages=n_pages,
        n_slots=n_slots,
        n_snapshots=n_snapshots,
        cache_bytes=memory.cache_bytes(config.layers, cache_format, n_pages, n_slots=0),
        state_bytes=n_slots * slot_bytes,
        scratch_bytes=memory.scratch_bytes(config, batch_tokens, n_outputs),
        available_bytes=hardware.available_bytes,
        reserve_bytes=max(_RESERVE_BYTES, int(_RESERVE_SHARE * hardware.memory_bytes)),
        read_bytes_per_token=memory.read_bytes_per_token(tensors, config),
        threads=_or(wishes.threads, hardware.n_threads),
        isa=hardware.isa,
        slow_formats=case.slow_formats,
    )


def _or(wish: int | None, default: int) -> int:
    return default if wish is None else wish


def _weights_reason(case: _Case, weights: Place) -> str:
    if case.wishes.weights:
        return "as asked"
    if weights == "read":
        return "small; a copy in huge pages makes tokens faster"
    if not case.hardware.has_huge_pages:
        return "this system has no huge pages, so a copy would gain nothing"
    if case.place == "read":
        return "no room for a copy; the system brings from the file what is needed"
    return f"above {memory.text(READ_BYTES)} a copy would delay the start"


def _context_reason(case: _Case, context: int) -> str:
    known = case.config.context_length
    if case.wishes.context is not None:
        return f"as asked; the model knows {known:,}"
    if context == known:
        return "all that the model knows"
    if context == DEFAULT_CONTEXT_TOKENS:
        return f"the default; the model knows {known:,}"
    return f"what fits; the model knows {known:,}"


def _slow_formats(tensors: Iterable[TensorInfo], fast: Collection[str]) -> tuple[str, ...]:
    """Formats of matrices without a fast kernel; vectors are small."""
    used = {tensor.type_name for tensor in tensors if len(tensor.shape) > 1}
    return tuple(sorted(used - set(fast)))


def _refusal(case: _Case) -> MemoryPlanError:
    """The numbers of the plan that came closest, and what would fit."""
    place: Place = "read" if case.wishes.weights == "read" else "map"
    plan = _plan(case, place, case.contexts[-1], case.wishes.sequences or 1)
    parts = [
        f"{label} {memory.text(n)}"
        for label, n, _ in plan.byte_rows()
        if not label.startswith(("  ", "weights, mapped"))
    ]
    return MemoryPlanError(
        f"{plan.model} does not fit: it needs {memory.text(plan.own_bytes)} "
        f"({', '.join(parts)}); {memory.text(plan.available_bytes)} are available, of which "
        f"{memory.text(plan.reserve_bytes)} are left to the system",
        _what_fits(case, plan),
    )


def _what_fits(case: _Case, plan: Plan) -> str:
    page = memory.page_bytes(case.config.layers, plan.cache_format)
    room = plan.room_bytes - (plan.own_bytes - plan.n_pages * page)
    n_tokens = room // (page * plan.sequences) * PAGE_TOKENS if page else 0
    if n_tokens >= PAGE_TOKENS and n_tokens < plan.context:
        each = f" in each of {plan.sequences} sequences" if plan.sequences > 1 else ""
        return f"A context of {n_tokens:,} tokens{each} fits; a q8_0 cache takes half of f16."
    if plan.weights == "read":
        return "Let the weights be mapped, or use a smaller file of this model."
    return "Close other programs, or use a smaller file of this model."
