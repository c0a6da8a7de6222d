"""What to say when a plan does not fit: the numbers of the closest one, and what would fit."""

from __future__ import annotations

from octavo.errors import MemoryPlanError, SettingError
from octavo.kv.state import PAGE_TOKENS
from octavo.plan import memory
from octavo.plan.layout import CARD_BATCH_TOKENS, Case, Choice, lay_out
from octavo.plan.plan import Place, Placement, Plan
from octavo.plan.table import host_rows, video_rows


def refusal(case: Case) -> MemoryPlanError:
    """Of everything in main memory."""
    place: Place = "read" if case.wishes.weights == "read" else "map"
    plan = lay_out(case, Choice("cpu", place, case.contexts[-1], case.wishes.sequences or 1))
    parts = [
        f"{label} {memory.text(n)}"
        for label, n, _ in host_rows(plan)
        if not label.startswith(("  ", "weights, mapped"))
    ]
    return MemoryPlanError(
        f"{plan.model} does not fit: it needs {memory.text(plan.own_bytes)} "
        f"({', '.join(parts)}); {memory.text(plan.available_bytes)} are available, of which "
        f"{memory.text(plan.reserve_bytes)} are left to the system",
        _what_fits(case, plan),
    )


def card_refusal(case: Case, placement: Placement) -> MemoryPlanError:
    """Of this placement on the card: its least plan, what is there, who holds the rest."""
    if placement == "split" and case.config.experts is None:
        return MemoryPlanError(
            f"{case.file.path.name} has no routed experts that could stay in main memory",
            "Use the placement gpu or cpu.",
        )
    sequences, batch = case.wishes.sequences or 1, CARD_BATCH_TOKENS[-1]
    place: Place = "read" if case.wishes.weights == "read" else "map"
    plan = lay_out(case, Choice(placement, place, case.contexts[-1], sequences, batch))
    video = plan.video
    assert video is not None
    if plan.fits_card:
        return refusal(case)  # the card is not what is short
    pool = max(video.least_slots, video.n_slots) * video.slot_bytes
    need = plan.video_total_bytes - video.pool_bytes + pool
    rows = [(label, n) for label, n, _ in video_rows(plan) if n and label != "expert pool"]
    if pool:
        rows.append(("experts at least", pool))
    parts = ", ".join(f"{label} {memory.text(n)}" for label, n in rows)
    held = f", {memory.text(video.other_bytes)} are held by others" if video.other_bytes else ""
    return MemoryPlanError(
        f"{plan.model} needs at least {memory.text(need)} of video memory ({parts}); "
        f"{memory.text(video.limit_bytes)} can be used on {video.gpu}{held}",
        _what_fits_card(case, plan, need),
    )


def no_card(wish: str) -> SettingError:
    """A card was asked for."""
    return SettingError(
        f"The placement {wish} needs a graphics card; none was found",
        "Run `octavo doctor` to see why, or use the placement cpu.",
    )


def _what_fits(case: Case, plan: Plan) -> str:
    page = memory.page_bytes(case.config.layers, plan.cache_format)
    n_tokens = _tokens(plan.room_bytes - (plan.own_bytes - plan.n_pages * page), page, plan)
    if PAGE_TOKENS <= n_tokens < plan.context:
        return f"{_context(n_tokens, plan)}; a q8_0 cache takes half of f16."
    if plan.weights == "read":
        return "Let the weights be mapped, or use a smaller file of this model."
    return "Close other programs, or use a smaller file of this model."


def _what_fits_card(case: Case, plan: Plan, need: int) -> str:
    assert plan.video is not None
    page = memory.page_bytes(case.config.layers, plan.cache_format)
    n_tokens = _tokens(plan.video.limit_bytes - (need - plan.n_pages * page), page, plan)
    if PAGE_TOKENS <= n_tokens < plan.context:
        return f"{_context(n_tokens, plan)}; a q8_0 cache takes half of f16."
    if plan.placement == "gpu" and case.config.experts:
        return "Use the placement split, which leaves experts in main memory."
    return "Close other programs, use a smaller file of this model, or the placement cpu."


def _tokens(room: int, page: int, plan: Plan) -> int:
    return room // (page * plan.sequences) * PAGE_TOKENS if page else 0


def _context(n_tokens: int, plan: Plan) -> str:
    each = f" in each of {plan.sequences} sequences" if plan.sequences > 1 else ""
    return f"A context of {n_tokens:,} tokens{each} fits"
