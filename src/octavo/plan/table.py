"""A plan as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from octavo.plan.memory import text
from octavo.plan.plan import COUNTED_TOKENS

if TYPE_CHECKING:
    from octavo.plan.plan import Expected, Place, Plan, Thinking, Video

Row = tuple[str, int, str]  # label, bytes, remark

_WORDS: Mapping[Place, str] = {"read": "read", "map": "mapped"}


def table(plan: Plan) -> str:
    """One line each, sizes aligned."""
    lines = [f"{plan.model} ({plan.architecture})"]
    if plan.placement_reason:
        lines.append(f"placement: {plan.placement}: {plan.placement_reason}")
    if plan.video is not None:
        lines.append(f"video memory of {plan.video.gpu}:")
        lines += _lines([*video_rows(plan), _video_total(plan, plan.video)])
        lines.append("main memory:")
    lines += _lines([*host_rows(plan), ("total", plan.total_bytes, _verdict(plan))])
    return "\n".join([*lines, *_notes(plan)])


def host_rows(plan: Plan) -> list[Row]:
    """Everything that takes main memory; kinds of weights indented."""
    video = plan.video
    kinds = plan.weight_bytes if video is None else video.left_bytes
    rows = [
        (f"weights, {_WORDS[plan.weights]}", plan.host_weight_bytes, plan.weights_reason),
        *((f"  {kind}", n, _pinned(kind, video)) for kind, n in kinds.items()),
    ]
    if video is None:
        rows += _step_rows(plan)
    else:
        rows.append(("scratch", video.host_scratch_bytes, "experts that the processor computes"))
    return [row for row in rows if row[1]]


def video_rows(plan: Plan) -> list[Row]:
    """Everything that takes video memory, CUDA's own included."""
    video = plan.video
    assert video is not None
    each = video.n_slots // video.n_blocks if video.n_blocks else 0
    least = video.least_slots // video.n_blocks if video.n_blocks else 0
    n_all = video.n_blocks * video.n_experts
    pool = f"{video.n_slots:,} of {n_all:,} experts ({video.pool_share:.0%}), "
    pool += f"{each} a block; {least} is the least"
    rows: list[Row] = [
        *((kind, n, "") for kind, n in video.weight_bytes.items()),
        *_step_rows(plan),
        ("ring", video.ring_bytes, "experts on their way while a prompt is read"),
        ("expert pool", video.pool_bytes, pool),
        ("CUDA context", video.context_bytes, ""),
        ("slack", video.slack_bytes, ""),
    ]
    return [row for row in rows if row[1]]


def _step_rows(plan: Plan) -> list[Row]:
    sequences = f"{plan.sequences} x " if plan.sequences > 1 else ""
    states = f"{plan.n_slots} recurrent states, {plan.n_snapshots} for snapshots"
    return [
        ("cache", plan.cache_bytes, f"{plan.cache_format}, {sequences}{plan.context:,} tokens"),
        ("states", plan.state_bytes, states),
        ("scratch", plan.scratch_bytes, f"steps of up to {plan.batch_tokens} tokens"),
    ]


def _pinned(kind: str, video: Video | None) -> str:
    if video is None or kind != "experts" or not video.pinned_bytes:
        return ""
    return f"{text(video.pinned_bytes)} pinned"


def _lines(rows: list[Row]) -> list[str]:
    return [f"{label:<18} {text(n):>9}  {why}".rstrip() for label, n, why in rows]


def _video_total(plan: Plan, video: Video) -> Row:
    remark = f"of {text(video.limit_bytes)} that can be used of {text(video.total_bytes)}"
    if video.other_bytes:
        remark += f"; {text(video.other_bytes)} held by others"
    named = [f"{p.name} {text(p.n_bytes)}" for p in video.other_programs if p.n_bytes]
    named += [p.name for p in video.other_programs if p.n_bytes is None]
    return "total", plan.video_total_bytes, remark + (f" ({', '.join(named)})" if named else "")


def _verdict(plan: Plan) -> str:
    numbers = (
        f"{text(plan.room_bytes)} of {text(plan.available_bytes)} available, "
        f"{text(plan.reserve_bytes)} left to the system"
    )
    if plan.fits:
        return f"fits: {numbers}"
    return f"does not fit, weights will be read from disk again: {numbers}"


def _notes(plan: Plan) -> list[str]:
    reads = text(plan.read_bytes_per_token)
    biggest = ", ".join(f"{n:,} in {name}" for name, n in plan.contexts.items())
    notes = [f"context: {plan.context:,} tokens ({plan.context_reason})"]
    if biggest:
        notes.append(f"biggest context that fits: {biggest}")
    notes.append(f"a token reads {reads} of weights, and what the cache holds")
    if plan.expected:
        notes += _expected(plan, plan.expected)
    elif not plan.fits:
        notes.append("expected: as fast as the disk brings weights")
    if plan.thinking:
        notes += _thinking(plan.thinking)
    notes.append(f"threads: {plan.threads}, instructions: {plan.isa or 'no native kernels'}")
    if plan.slow_formats:
        notes.append(f"without a fast kernel, so slow: {', '.join(plan.slow_formats)}")
    return notes


def _expected(plan: Plan, found: Expected) -> list[str]:
    most = "at most " if plan.video is None else ""
    speeds = f"expected: generation {most}{_number(found.decode)} tok/s, "
    speeds += f"{_number(found.decode_full)} at {plan.context:,} tokens"
    if found.prefill:
        speeds += f"; prompts about {_number(found.prefill)} tok/s"
    if found.hit_share is not None:
        speeds += f"; {found.hit_share:.0%} of experts found on the card"
    return [speeds, *(f"  from {rate}" for rate in found.basis)]


def _thinking(found: Thinking) -> list[str]:
    again = "what came since the last question is read again at the next one"
    if found.read_seconds is not None:
        again += f", {COUNTED_TOKENS:,} tokens in about {_number(found.read_seconds)} s"
    if not found.is_kept:
        return [f"thinking: the template drops that of earlier turns: {again}"]
    size = f"{COUNTED_TOKENS:,} tokens of it take {text(found.cache_bytes)} of the cache"
    return [
        f"thinking: octavo serve keeps that of earlier turns in the prompt; {size}",
        f'  with "preserve_thinking": false, {again}',
    ]


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
