"""Searching the codebooks of the iq1, iq2 and iq3 formats.

A vector is the 8 or 4 weights that one point of the codebook stands for; a group is the vectors
that share a scale. All these formats scale by d * unit * (2 level + 1), with a small whole level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.quants._blocks import Bytes, Floats, join_bits, ratio, to_half
from octavo.quants._scales import refit

# A first guess of a scale puts the peak of a group at this multiple of the codebook's.
_REACHES = tuple(np.linspace(0.75, 1.55, 9, dtype=np.float32))


class CodebookFit(NamedTuple):
    """d (n_blocks, 1), a half-precision number; level (n_blocks, n_groups); point (n_blocks,
    n_vectors), numbers in the codebook; book (n_blocks, n_groups), which codebook was taken."""

    d: Floats
    level: Bytes
    point: NDArray[np.uint16]
    book: Bytes


def fit_codebook(x: Floats, books: Floats, unit: float, top_level: int) -> CodebookFit:
    """Blocks as d * unit * (2 level + 1) * point.

    x: (n_blocks, n_groups, vectors of a group, weights of a vector).
    books: (n_books, n_points, weights of a vector); a group takes all its points from one.
    """
    n_blocks, n_groups = x.shape[:2]
    groups = x.reshape(n_blocks * n_groups, *x.shape[2:])
    values = x.reshape(n_blocks, -1)
    scales = _group_scales(groups, books).reshape(n_blocks, n_groups)
    d = to_half(scales.max(axis=1, keepdims=True) / np.float32(unit * (2 * top_level + 1)))
    for _ in range(2):
        level = np.rint(ratio(scales, d) / np.float32(2 * unit) - np.float32(0.5))
        level = np.clip(level, 0, top_level)
        odd = np.float32(unit) * (2 * level + 1)
        q, point, book = _nearest(groups, (d * odd).ravel(), books)
        units = q.reshape(n_blocks, n_groups, -1) * odd[..., None]
        d = refit(values, units.reshape(n_blocks, -1), d)
    return CodebookFit(
        d, level.astype(np.uint8), point.reshape(n_blocks, -1), book.reshape(n_blocks, n_groups)
    )


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


def _group_scales(groups: Floats, books: Floats) -> Floats:
    """The best scale of each group on its own: (n_groups,)."""
    peak = np.abs(groups).max(axis=(1, 2)) / np.abs(books).max()
    best = np.zeros(len(groups), np.float32)
    gain = np.zeros(len(groups), np.float32)
    for reach in _REACHES:
        q = _nearest(groups, peak / reach, books)[0]
        xq = np.sum(groups * q, axis=(1, 2))
        trial = ratio(xq, np.sum(q * q, axis=(1, 2)))
        better = trial * xq > gain
        best = np.where(better, trial, best)
        gain = np.where(better, trial * xq, gain)
    return np.maximum(best, 0)


def _nearest(
    groups: Floats, scales: Floats, books: Floats
) -> tuple[Floats, NDArray[np.uint16], Bytes]:
    """For each vector x the point g nearest to x / scale.

    |x - s g|^2 is smallest where x . g - s |g|^2 / 2 is largest, which also orders books and holds
    for a scale of 0. Returns the points like `groups`, their numbers (n_groups, vectors) and the
    book of each group.
    """
    n_groups, n_vectors, width = groups.shape
    half_scales = np.broadcast_to(scales[:, None, None] / 2, (n_groups, n_vectors, 1))
    x = np.concatenate([groups, half_scales], axis=2).reshape(-1, width + 1)
    points, merits = [], []
    for book in books:
        norms = np.sum(book * book, axis=1, keepdims=True)
        merit = x @ np.concatenate([book, -norms], axis=1).T
        point = merit.argmax(axis=1)
        points.append(point.reshape(n_groups, n_vectors))
        best = np.take_along_axis(merit, point[:, None], axis=1)
        merits.append(best.reshape(n_groups, n_vectors).sum(axis=1))
    chosen = np.argmax(merits, axis=0)
    point = np.stack(points)[chosen, np.arange(n_groups)]
    return books[chosen[:, None], point], point.astype(np.uint16), chosen.astype(np.uint8)
