"""Searching scales for formats whose weights are evenly spaced integers or one table.

Groups of weights are columns, (group_elements, n_groups), so that every step is one pass over
long rows. The error that is minimised is the plain sum of squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.quants._blocks import Bytes, Floats, ratio, to_half

# How far towards the end of a table the peak of a group is tried; above 1 it is cut off.
_TABLE_REACHES = (0.82, 0.88, 0.94, 1.0, 1.06, 1.12)


def columns(values: Floats, group_elements: int) -> Floats:
    """(n_blocks, block_elements) -> (group_elements, n_groups of all blocks)."""
    return np.ascontiguousarray(values.reshape(-1, group_elements).T)


def rows(x: Floats, n_blocks: int) -> Floats:
    """The inverse of `columns`."""
    return np.ascontiguousarray(x.T).reshape(n_blocks, -1)


def signed_peak(x: Floats, axis: int) -> Floats:
    """Along `axis` (kept, of length 1), the value that is largest without its sign."""
    high = x.max(axis, keepdims=True)
    low = x.min(axis, keepdims=True)
    peak: Floats = np.where(-low > high, low, high)
    return peak


def round_to(x: Floats, inverse: Floats, low: int, high: int) -> Floats:
    """round(x * inverse) within low..high, as floats."""
    q = x * inverse
    np.rint(q, out=q)
    return np.clip(q, low, high, out=q)


def best_scale(
    x: Floats, quantise: Callable[[Floats], Floats], inverses: Sequence[Floats]
) -> Floats:
    """The scale for each column, (n_groups,), that fits x best.

    `quantise(inverse)` gives the integers q for x * inverse; for each choice of q, the best scale
    is (x . q) / (q . q), and the error falls by (x . q)^2 / (q . q).
    """
    scale = np.zeros(x.shape[1], np.float32)
    gain = np.zeros(x.shape[1], np.float32)
    for inverse in inverses:
        q = quantise(inverse)
        xq = np.sum(x * q, axis=0)
        trial = ratio(xq, np.sum(q * q, axis=0))
        better = trial * xq > gain
        scale = np.where(better, trial, scale)
        gain = np.where(better, trial * xq, gain)
    return scale


def signed_scale(x: Floats, low: int, high: int, nudges: Sequence[float]) -> Floats:
    """`best_scale` for integers low..high, -low > high: the peak takes `low` plus a nudge."""
    peak = signed_peak(x, 0)[0]
    inverses = [ratio(low + nudge, peak) for nudge in nudges]
    return best_scale(x, lambda inverse: round_to(x, inverse, low, high), inverses)


def table_scale(x: Floats, table: NDArray[np.int8]) -> Floats:
    """`best_scale` for values out of `table`: the peak comes near one end of it."""
    levels = table.astype(np.float32)
    peak = signed_peak(x, 0)[0]
    inverses = [ratio(end * reach, peak) for end in levels[[0, -1]] for reach in _TABLE_REACHES]
    return best_scale(x, lambda inverse: levels[nearest_codes(2 * x * inverse, table)], inverses)


def scale_and_low(x: Floats, top: int, nudges: Sequence[float]) -> tuple[Floats, Floats]:
    """For each column, scale >= 0 and low <= 0 so that x is about scale * q + low, q in 0..top."""
    n = x.shape[0]
    low = np.minimum(x.min(axis=0), 0)
    span = x.max(axis=0) - low
    sum_x = x.sum(axis=0)
    best = np.full(x.shape[1], np.inf, np.float32)
    best_step, best_low = np.zeros_like(best), low
    for nudge in nudges:
        q = round_to(x - low, ratio(top + nudge, span), 0, top)
        sum_q, sum_qq, sum_xq = q.sum(axis=0), np.sum(q * q, axis=0), np.sum(x * q, axis=0)
        spread = n * sum_qq - sum_q * sum_q
        step = ratio(n * sum_xq - sum_x * sum_q, spread)
        base = (sum_x - step * sum_q) / n
        # Offsets are stored without a sign; a line that would start above zero starts at zero.
        above = (base > 0) | (spread <= 0)
        step = np.maximum(np.where(above, ratio(sum_xq, sum_qq), step), 0)
        base = np.where(above, np.float32(0), base)
        error = step * (step * sum_qq + 2 * base * sum_q - 2 * sum_xq) + base * (
            n * base - 2 * sum_x
        )
        better = error < best
        best = np.where(better, error, best)
        best_step = np.where(better, step, best_step)
        best_low = np.where(better, base, best_low)
    return best_step, best_low


def shared_scale(scales: Floats, low: int, high: int) -> tuple[Floats, Floats]:
    """Scales of the groups of a block, (n_blocks, n_groups), as d * level.

    Returns d (n_blocks, 1), a half-precision number, and the levels, whole floats in low..high.
    With low < 0 the largest scale takes `low`, else `high`.
    """
    if low < 0:
        d = to_half(signed_peak(scales, 1) / np.float32(low))
    else:
        d = to_half(scales.max(axis=1, keepdims=True) / np.float32(high))
    return d, round_to(scales, ratio(1, d), low, high)


def fit_signed_scale(
    values: Floats,
    group_elements: int,
    q_range: tuple[int, int],
    level_range: tuple[int, int],
    nudges: Sequence[float],
) -> tuple[Floats, Floats, Bytes]:
    """Blocks as d * level * q.

    Returns d (n, 1), a half-precision number, the levels (n, n_groups), and q (n, elements) counted
    from the lowest, so that it is never negative.
    """
    n_blocks = len(values)
    x = columns(values, group_elements)
    scales = signed_scale(x, *q_range, nudges).reshape(n_blocks, -1)
    d, levels = shared_scale(scales, *level_range)
    q = rows(round_to(x, ratio(1, (d * levels).ravel()), *q_range), n_blocks)
    d = refit(values, levels.repeat(group_elements, axis=1) * q, d)
    return d, levels, (q - q_range[0]).astype(np.uint8)


def fit_low_and_scale(
    values: Floats, group_elements: int, top: int, top_level: int, nudges: Sequence[float]
) -> tuple[Floats, Bytes, Floats, Bytes, Bytes]:
    """Blocks as d * s * q - dmin * m: d (n, 1), s (n, n_groups), dmin, m, q (n, elements).

    q is in 0..top, s and m in 0..top_level; d and dmin are half-precision numbers.
    """
    n_blocks = len(values)
    x = columns(values, group_elements)
    step, low = scale_and_low(x, top, nudges)
    d, s = shared_scale(step.reshape(n_blocks, -1), 0, top_level)
    dmin, m = shared_scale(-low.reshape(n_blocks, -1), 0, top_level)
    x += (dmin * m).ravel()
    q = round_to(x, ratio(1, (d * s).ravel()), 0, top)
    return d, s.astype(np.uint8), dmin, m.astype(np.uint8), rows(q, n_blocks).astype(np.uint8)


def refit(values: Floats, units: Floats, d: Floats) -> Floats:
    """The d (n_blocks, 1) that fits values to d * units best, in half precision.

    values, units: (n_blocks, block_elements). Where the units are all zero, d stays.
    """
    power = np.sum(units * units, axis=1, keepdims=True)
    better = ratio(np.sum(values * units, axis=1, keepdims=True), power)
    return to_half(np.where(power > 0, better, d))


def nearest_codes(doubled: Floats, table: NDArray[np.int8]) -> Bytes:
    """Codes of the nearest entry of `table` (16 whole numbers) for values given doubled.

    Half-way points between whole numbers are multiples of one half, so one look-up per half
    step is exact.
    """
    halves = np.arange(-256, 256, dtype=np.float32)[:, None] / 2 + np.float32(0.25)
    lookup = np.abs(halves - table.astype(np.float32)).argmin(axis=1).astype(np.uint8)
    index = np.clip(np.floor(doubled), -256, 255).astype(np.int16)
    codes: Bytes = lookup[index + np.int16(256)]
    return codes
