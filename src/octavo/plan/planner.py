"""From a model's header, the machine and the user's wishes to a plan.

Wishes are honoured or refused with numbers, never changed. What was not wished for is chosen so
that it fits: first fewer sequences, then a shorter context, then weights that are mapped and may
not all stay in memory. Each choice has its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from octavo import models, registry
from octavo.errors import SettingError, UnsupportedError
from octavo.gguf.header import TensorInfo
from octavo.kv.state import PAGE_TOKENS
from octavo.plan import memory
from octavo.plan.expected import expected
from octavo.plan.hardware import Hardware
from octavo.plan.layout import (
    CARD_BATCH_TOKENS,
    DEFAULT_CACHE_FORMAT,
    DEFAULT_CONTEXT_TOKENS,
    Case,
    Choice,
    PlanFile,
    lay_out,
)
from octavo.plan.plan import Place, Placement, Plan
from octavo.plan.refusal import card_refusal, no_card, refusal
from octavo.plan.wishes import Wishes

__all__ = ["DEFAULT_CACHE_FORMAT", "DEFAULT_CONTEXT_TOKENS", "PlanFile", "Wishes", "make_plan"]

USEFUL_CONTEXT_TOKENS = 8_192  # mapped weights are chosen before less than this
DEFAULT_SEQUENCES = (4, 2, 1)  # tried in this order


def make_plan(
    file: PlanFile,
    wishes: Wishes,
    hardware: Hardware,
    fast_formats: Collection[str] | None = None,
) -> Plan:
    """Decide. `fast_formats` are the block formats with fast kernels; None: do not compare.

    Raises:
        MemoryPlanError: wishes, or the least that a model needs, do not fit; says the numbers.
        SettingError: a context beyond the model's, or a card where there is none.
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
    case = Case(file, config, wishes, hardware, slow)
    plan = _decide(case)
    return replace(plan, contexts=_biggest_contexts(case, plan), expected=expected(case, plan))


def _decide(case: Case) -> Plan:
    wish = case.wishes.placement or "cpu"
    reason = "the card is left alone; ask for the placement auto to plan with it"
    reason = reason if case.gpu and case.wishes.placement is None else ""
    if wish != "cpu":
        if case.gpu is None:
            if wish != "auto" or case.wishes.video_bytes:
                raise no_card(wish)
            reason = "there is no graphics card"
        elif plan := _on_card(case, wish):
            return plan
        elif wish != "auto":
            raise card_refusal(case, _least_placement(case) if wish == "card" else _card(wish))
        else:
            reason = card_refusal(case, _least_placement(case)).message
    plan = _comfortable(case, reason) or _tight(case, reason)
    if plan is None:
        raise refusal(case)
    return plan


# On a card


def _on_card(case: Case, wish: str) -> Plan | None:
    """The first plan that fits: all on the card before a split, the whole context before less."""
    wishes = case.wishes
    is_free = wish in ("auto", "card")
    placements: tuple[Placement, ...] = ("gpu", "split") if is_free else (_card(wish),)
    for context in case.contexts:
        for placement in placements:
            if placement == "split" and case.config.experts is None:
                continue
            counts = (wishes.sequences,) if wishes.sequences else _counts(placement)
            for sequences in counts:
                for batch in CARD_BATCH_TOKENS:
                    choice = Choice(placement, "map", context, sequences, batch, _WHY[placement])
                    if plan := _with_memory(case, choice):
                        return plan
    return None


_WHY: dict[Placement, str] = {
    "gpu": "everything fits into video memory",
    "split": "not all experts fit into video memory",
}


def _card(wish: str) -> Placement:
    return "gpu" if wish == "gpu" else "split"


def _counts(placement: Placement) -> tuple[int, ...]:
    """Numbers of sequences to try. In a split, room serves experts better than more of them."""
    return DEFAULT_SEQUENCES if placement == "gpu" else (1,)


def _with_memory(case: Case, choice: Choice) -> Plan | None:
    """The choice with its weights in main memory read if there is room, else mapped."""
    wish = case.wishes.weights
    places: list[Place] = ["read", "map"] if choice.placement == "split" else ["map"]
    for place in [p for p in places if wish in (None, p) or choice.placement == "gpu"]:
        plan = lay_out(case, replace(choice, weights=place))
        if plan.fits_card and plan.own_bytes <= plan.room_bytes:
            return plan
    return None


def _least_placement(case: Case) -> Placement:
    return "split" if case.config.experts else "gpu"


# On the processor


def _comfortable(case: Case, reason: str) -> Plan | None:
    """The best plan in which everything stays in memory."""
    wishes = case.wishes
    for context in case.contexts:
        if context < min(USEFUL_CONTEXT_TOKENS, case.contexts[0]) and not wishes.weights:
            break
        for sequences in (wishes.sequences,) if wishes.sequences else DEFAULT_SEQUENCES:
            plan = lay_out(case, Choice("cpu", case.place, context, sequences, reason=reason))
            if plan.fits:
                return plan
    return None


def _tight(case: Case, reason: str) -> Plan | None:
    """Mapped weights, of which the system may have to read some again and again."""
    if case.wishes.weights == "read":
        return None
    for context in case.contexts:
        sequences = case.wishes.sequences or 1
        plan = lay_out(case, Choice("cpu", "map", context, sequences, reason=reason))
        if plan.own_bytes <= plan.room_bytes:
            return plan
    return None


# What the plan says besides


def _biggest_contexts(case: Case, plan: Plan) -> dict[str, int]:
    """Of each cache format, the most tokens that fit with the plan's other choices."""
    return {name: n for name in cache_formats() for n in _biggest_context(case, plan, name)}


def cache_formats() -> tuple[str, ...]:
    """All there are."""
    return registry.names("kv.formats")


def _biggest_context(case: Case, plan: Plan, cache_format: str) -> Iterator[int]:
    """That number; nothing where the format cannot hold this model or not even one page."""
    known = case.config.context_length
    try:
        page = memory.page_bytes(case.config.layers, cache_format) * plan.sequences
    except UnsupportedError:
        return
    choice = Choice(plan.placement, plan.weights, known, plan.sequences, plan.batch_tokens)
    most = lay_out(case, replace(choice, cache_format=cache_format))
    if most.video is None:
        # Mapped weights may have to give way only where they do already.
        over = (most.total_bytes if plan.fits else most.own_bytes) - most.room_bytes
    else:
        pool = most.video.least_slots * most.video.slot_bytes
        over = most.video_total_bytes - most.video.pool_bytes + pool - most.video.limit_bytes
    n_pages = -(-known // PAGE_TOKENS)
    n_over = -(-over // page) if page and over > 0 else 0
    if n_over < n_pages and (page or over <= 0):
        yield min(known, (n_pages - n_over) * PAGE_TOKENS)


def _slow_formats(tensors: Iterable[TensorInfo], fast: Collection[str]) -> tuple[str, ...]:
    """Formats of matrices without a fast kernel; vectors are small."""
    used = {tensor.type_name for tensor in tensors if len(tensor.shape) > 1}
    return tuple(sorted(used - set(fast)))
