"""Products of tokens with rows of a weight: the inner loops that all such kernels share.

A kernel is handed the `span` function of a block format (`ops.gpu.quants`), so that one kernel
serves every format. Up to `FEW_TOKENS` tokens are multiplied in float32 as they are: then the
bytes of the weight take the time. More tokens are half-precision tiles for the matrix units.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from octavo.ops.gpu.device import IS_INTERPRETED, find

FEW_TOKENS = 4
SPAN = 128  # weights; `ops.gpu.quants` says why

_HALF_MAX = tl.constexpr(65504.0)


class FewTile(NamedTuple):
    """How a program divides a product of few tokens."""

    rows: int
    spans: int
    warps: int


def few_tile(n_rows: int, columns: int, n_tokens: int) -> FewTile:
    """For `n_rows` rows in all of the launch's programs.

    One warp a program: what a row needs from its neighbours then moves by shuffles, without
    barriers, and programs are small enough to fill the device evenly. Two rows share the
    activations where there are rows enough to fill the device with half as many programs.
    """
    # Sums of each weight and token stay in registers until the end: 32 of them a thread.
    spans = min(8 // triton.next_power_of_2(n_tokens), triton.next_power_of_2(-(-columns // SPAN)))
    many = n_rows >= 64 * find().n_processors
    rows = 2 if many and n_tokens <= 2 else 1
    if IS_INTERPRETED:  # there, programs run one after the other
        rows = 64
    return FewTile(rows, spans, 1)


class ManyTile(NamedTuple):
    """How a program divides a product of many tokens."""

    tokens: int
    rows: int
    warps: int
    stages: int


def many_tile(n_tokens: int) -> ManyTile:
    """The tile of tokens is as small as it may be: each token of it costs, used or not."""
    if n_tokens <= 16:
        return ManyTile(16, 32, 4, 2)
    if n_tokens <= 64:
        return ManyTile(32, 64, 4, 2)
    if find().shared_bytes < 100_000:  # Turing
        return ManyTile(64, 64, 4, 1)
    return ManyTile(128, 128, 8, 2)


@triton.jit
def weight_rows(w, n_rows, first, row_bytes, ROWS: tl.constexpr):
    """Pointers (ROWS,) to the rows from `first` on; those beyond the last are the last again."""
    row = tl.minimum(first + tl.arange(0, ROWS), n_rows - 1)
    return w + row.to(tl.int64) * row_bytes


@triton.jit
def load_few(x, x_stride, n_tokens, first_span, columns, TOKENS: tl.constexpr, SPANS: tl.constexpr):
    """Float32 activations (TOKENS, SPANS * 128); zeros beyond their ends."""
    k = first_span * 128 + tl.arange(0, SPANS * 128)
    t = tl.arange(0, TOKENS)
    places = x + t[:, None] * x_stride + k[None, :]
    return tl.load(places, mask=(t < n_tokens)[:, None] & (k < columns)[None, :], other=0.0)


@triton.jit
def few_product(
    x,
    x_stride,
    n_tokens,
    rows,
    table,
    n_blocks,
    columns,
    span: tl.constexpr,
    ROWS: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Up to TOKENS tokens of `x` times the weight's rows -> (TOKENS, ROWS) float32."""
    total = tl.zeros([TOKENS, ROWS, SPANS * 128], tl.float32)
    for first in range(0, tl.cdiv(columns, 128), SPANS):
        w = span(rows, table, n_blocks, first, SPANS)
        xs = load_few(x, x_stride, n_tokens, first, columns, TOKENS, SPANS)
        total += w[None, :, :] * xs[:, None, :]
    return tl.sum(total, 2)


@triton.jit
def to_half(x):
    """Half precision; what is too large becomes the largest."""
    return tl.minimum(tl.maximum(x, -_HALF_MAX), _HALF_MAX).to(tl.float16)


@triton.jit
def load_many(places, k, is_token, columns):
    """A tile of half-precision activations at `places` (tokens,) pointers, columns `k`."""
    mask = is_token[:, None] & (k < columns)[None, :]
    return to_half(tl.load(places[:, None] + k[None, :], mask=mask, other=0.0))


@triton.jit
def many_product(
    places,
    is_token,
    rows,
    table,
    n_blocks,
    columns,
    first_span,
    end_span,
    span: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Tokens at `places` (TOKENS,) times the rows, spans first:end -> (TOKENS, ROWS) float32."""
    total = tl.zeros([TOKENS, ROWS], tl.float32)
    for s in range(first_span, end_span):
        x = load_many(places, s * 128 + tl.arange(0, 128), is_token, columns)
        w = span(rows, table, n_blocks, s, 1).to(tl.float16)
        total = tl.dot(x, tl.trans(w), total)
    return total
