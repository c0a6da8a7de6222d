"""Searching the codebooks of the iq1, iq2 and iq3 formats.

A vector is the 8 or 4 weights that one point of the codebook stands for; a group is the vectors
that share a scale. All these formats scale by d * unit * (2 level + 1), with a small whole level.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.quants._blocks import Bytes, Floats, join_bits, ratio, to_half
from octavo.quants._grids import grid
from octavo.quants._scales import refit

# A first guess of a scale puts the peak of a group at this multiple of the codebook's.
_REACHES = tuple(np.linspace(0.75, 1.55, 9, dtype=np.float32))

# Points that are looked at for a vector, while a scale is sought and at the end. The error is
# within 1 % of looking at all.
_N_SEEKING, _N_FINAL = 6, 16


class Codebook(NamedTuple):
    """A grid plus a shift, with its points near every vector of levels.

    points: (n_points, width). bounds: the half-way marks between levels, ascending.
    neighbours: (levels ^ width, n), nearest first, indexed by the levels' numbers as digits, the
    first weight's highest.
    """

    points: Floats
    bounds: Floats
    neighbours: NDArray[np.intp]


class CodebookFit(NamedTuple):
    """d (n_blocks, 1), a half-precision number; level (n_blocks, n_groups); point and book
    (n_blocks, n_vectors): the number of the point, and of the codebook it is from."""

    d: Floats
    level: Bytes
    point: NDArray[np.uint16]
    book: Bytes


@cache
def codebook(name: str, shift: float = 0.0) -> Codebook:
    """The codebook of `grid(name)`, `shift` added to every weight."""
    points = grid(name).astype(np.float32) + np.float32(shift)
    levels = np.unique(points)
    width = points.shape[1]
    corners = np.stack(np.meshgrid(*[levels] * width, indexing="ij"), axis=-1).reshape(-1, width)
    nearness = corners @ points.T - np.sum(points * points, axis=1) / 2
    near = np.argpartition(-nearness, _N_FINAL, axis=1)[:, :_N_FINAL]
    order = np.argsort(-np.take_along_axis(nearness, near, axis=1), axis=1)
    bounds: Floats = (levels[1:] + levels[:-1]) * np.float32(0.5)
    return Codebook(points, bounds, np.take_along_axis(near, order, axis=1))


def fit_codebook(
    x: Floats, books: tuple[Codebook, ...], unit: float, top_level: int, one_book: bool = False
) -> CodebookFit:
    """Blocks as d * unit * (2 level + 1) * point.

    x: (n_blocks, n_groups, vectors of a group, weights of a vector). With `one_book`, the vectors
    of a group take their points from the same of `books`.
    """
    n_blocks, n_groups = x.shape[:2]
    groups = x.reshape(n_blocks * n_groups, *x.shape[2:])
    values = x.reshape(n_blocks, -1)
    scales = _group_scales(groups, books, one_book).reshape(n_blocks, n_groups)
    d = to_half(scales.max(axis=1, keepdims=True) / np.float32(unit * (2 * top_level + 1)))
    for _ in range(2):
        level = np.rint(ratio(scales, d) / np.float32(2 * unit) - np.float32(0.5))
        level = np.clip(level, 0, top_level)
        odd = np.float32(unit) * (2 * level + 1)
        q, point, book = _nearest(groups, (d * odd).ravel(), books, one_book, _N_FINAL)
        units = q.reshape(n_blocks, n_groups, -1) * odd[..., None]
        d = refit(values, units.reshape(n_blocks, -1), d)
    per_block = (n_blocks, n_groups * x.shape[2])
    return CodebookFit(d, level.astype(np.uint8), point.reshape(per_block), book.reshape(per_block))


def take_signs(values: Floats, even: bool) -> tuple[Bytes, Floats]:
    """Signs and magnitudes of (n_blocks, block_elements).

    Returns one byte for 8 weights, bit i for weight i, and the magnitudes. With `even`, each byte
    has an even number of ones: where it would be odd, the smallest weight of the 8 gets the wrong
    sign and a negative magnitude.
    """
    negative = np.signbit(values).astype(np.uint8)
    magnitudes = np.abs(values)
    if even:
        eights = magnitudes.reshape(-1, 8)
        odd = np.flatnonzero(negative.reshape(-1, 8).sum(axis=1) & 1)
        smallest = eights[odd].argmin(axis=1)
        negative.reshape(-1, 8)[odd, smallest] ^= 1
        eights[odd, smallest] *= -1
    return join_bits(negative, 1, 1), magnitudes


def _group_scales(groups: Floats, books: tuple[Codebook, ...], one_book: bool) -> Floats:
    """The best scale of each group on its own: (n_groups,)."""
    peak = np.abs(groups).max(axis=(1, 2)) / max(np.abs(b.points).max() for b in books)
    best = np.zeros(len(groups), np.float32)
    gain = np.zeros(len(groups), np.float32)
    for reach in _REACHES:
        q = _nearest(groups, peak / reach, books, one_book, _N_SEEKING)[0]
        xq = np.einsum("gvk,gvk->g", groups, q)
        trial = ratio(xq, np.einsum("gvk,gvk->g", q, q))
        better = trial * xq > gain
        best = np.where(better, trial, best)
        gain = np.where(better, trial * xq, gain)
    return np.maximum(best, 0)


def _nearest(
    groups: Floats, scales: Floats, books: tuple[Codebook, ...], one_book: bool, n_near: int
) -> tuple[Floats, NDArray[np.uint16], Bytes]:
    """For each vector x, with the scale s of its group, the point g that makes |x - s g| smallest.

    Looks at the `n_near` points around x / s. Returns the points like `groups`, and the numbers of
    points and books (n_groups, vectors).
    """
    shape = groups.shape[:2]
    x = groups.reshape(-1, groups.shape[2])
    s = scales.repeat(shape[1])[:, None]
    found = [_nearest_in(book, x, s, n_near) for book in books]
    merits = np.stack([merit.reshape(shape) for _, merit in found])
    if one_book:
        merits = np.broadcast_to(merits.sum(axis=2, keepdims=True), merits.shape)
    chosen = merits.argmax(axis=0)
    point = np.stack([point.reshape(shape) for point, _ in found])
    point = np.take_along_axis(point, chosen[None], axis=0)[0]
    q = np.stack([book.points for book in books])[chosen, point]
    return q, point.astype(np.uint16), chosen.astype(np.uint8)


def _nearest_in(
    book: Codebook, x: Floats, s: Floats, n_near: int
) -> tuple[NDArray[np.intp], Floats]:
    """Numbers and merits of the points nearest to the vectors (n, width) with scales (n, 1).

    |x - s g|^2 is smallest where x . g - s |g|^2 / 2, the merit, is largest; that also tells which
    of two books is nearer, and holds for a scale of zero.
    """
    scaled = ratio(1, s) * x
    digits = np.zeros(x.shape, np.float32)
    for bound in book.bounds:
        digits += scaled > bound
    powers = np.float32(len(book.bounds) + 1) ** np.arange(x.shape[1] - 1, -1, -1)
    corner = (digits @ powers.astype(np.float32)).astype(np.intp)
    nearby = book.neighbours[:, :n_near].take(corner, axis=0)
    half_norms = np.einsum("pk,pk->p", book.points, book.points) / 2
    merits = np.einsum("nk,nmk->nm", x, book.points.take(nearby, axis=0))
    merits -= s * half_norms.take(nearby)
    best = merits.argmax(axis=1)[:, None]
    return np.take_along_axis(nearby, best, axis=1)[:, 0], np.take_along_axis(merits, best, 1)[:, 0]
