"""Products of tokens with rows of a weight: the inner loops that all such kernels share.

A kernel is handed the `parts` function of a block format (`ops.gpu.quants`), so that one kernel
serves every format. Up to `FEW_TOKENS` tokens are multiplied in float32 as they are: then the
bytes of the weight take the time. More tokens are half-precision tiles for the matrix units.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from octavo.ops.gpu import relay
from octavo.ops.gpu.device import IS_INTERPRETED, find

FEW_TOKENS = 4
LEAST_TOKENS = 16  # of a tile for the matrix units
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


def is_whole(columns: int, tile: FewTile) -> bool:
    """Whether no step goes beyond the end of a row, so that nobody has to ask."""
    return columns % (tile.spans * SPAN) == 0


class ManyTile(NamedTuple):
    """How a program divides a product of many tokens."""

    tokens: int
    rows: int
    warps: int
    stages: int


def is_turing() -> bool:
    """Whether Triton multiplies tiles without matrix units, one product at a time.

    Larger tiles than the smallest would not fit into the registers.
    """
    return 0 < find().arch < 80


def many_tile(n_tokens: int) -> ManyTile:
    """The tile of tokens is as small as it may be: each token of it costs, used or not."""
    if is_turing():
        return ManyTile(LEAST_TOKENS, 32, 4, 1)
    if n_tokens <= LEAST_TOKENS:
        return ManyTile(LEAST_TOKENS, 32, 4, 2)
    if n_tokens <= 64:
        return ManyTile(32, 64, 4, 2)
    if find().shared_bytes < 100_000:
        return ManyTile(64, 64, 4, 1)
    return ManyTile(128, 128, 8, 2)


@triton.jit
def weight_rows(w, n_rows, first, row_bytes, ROWS: tl.constexpr):
    """Pointers (ROWS,) to the rows from `first` on; those beyond the last are the last again.

    `w` is a pointer, or an address: of main memory that the card reads in place.
    """
    if w.dtype.is_int():
        w = w.to(tl.pointer_type(tl.uint8))
    row = tl.minimum(first + tl.arange(0, ROWS), n_rows - 1)
    return w + row.to(tl.int64) * row_bytes


@triton.jit
def fetch_rows(w, n_rows, first, row_bytes, ROWS: tl.constexpr):
    """Bring the rows from `first` on closer, as far as there are any."""
    n_bytes = tl.minimum(ROWS, n_rows - first) * row_bytes
    relay.fetch_ahead(w + tl.cast(first, tl.int64) * row_bytes, n_bytes)


@triton.jit
def unpack(
    rows,
    table,
    n_blocks,
    first,
    parts: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    SPANS: tl.constexpr,
):
    """The weights of spans first:first + SPANS of the rows: (R, SPANS * 128) float32."""
    R: tl.constexpr = rows.shape[0]
    q, scale, offset = parts(rows, table, n_blocks, first, SPANS)
    G: tl.constexpr = scale.shape[1] * scale.shape[2]
    w = q.reshape(R, G, SPANS * 128 // G) * scale.reshape(scale.shape[0], G)[:, :, None]
    if HAS_OFFSET:
        w += offset.reshape(R, G)[:, :, None]
    return w.reshape(R, SPANS * 128)


@triton.jit
def load_few(
    x,
    x_stride,
    n_tokens,
    first_span,
    columns,
    RUN: tl.constexpr,
    VEC: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Float32 activations (TOKENS, SPANS * 128), lying as weights of a format do.

    Beyond the ends of x they are zeros; with `columns` None no token has such.
    """
    t = tl.arange(0, TOKENS)
    x += first_span * 128
    if columns is None:
        columns = SPANS * 128
    else:
        columns -= first_span * 128
    places = x + t[:, None] * x_stride
    is_token = (t < n_tokens)[:, None]
    if RUN == 0:
        k = tl.max_contiguous(tl.arange(0, SPANS * 128), VEC)[None, :]
        return tl.load(places + k, mask=is_token & (k < columns), other=0.0)
    else:
        i = tl.arange(0, SPANS * 64)
        k = tl.max_contiguous(i // RUN * (2 * RUN) + i % RUN, VEC)[None, :]
        low = tl.load(places + k, mask=is_token & (k < columns), other=0.0)
        high = tl.load(places + k + RUN, mask=is_token & (k + RUN < columns), other=0.0)
        both = tl.join(low, high).reshape(TOKENS, SPANS * 64 // RUN, RUN, 2).permute(0, 1, 3, 2)
        return both.reshape(TOKENS, SPANS * 128)


@triton.jit
def few_step(
    x,
    rows,
    table,
    n_blocks,
    first,
    parts: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    VEC: tl.constexpr,
    SPANS: tl.constexpr,
):
    """Part of a product of x (T, SPANS * 128) with rows (R,): (T, R, SPANS * 128 / VEC).

    Each thread multiplies its VEC neighbours and scales their sum. What is left to add up is the
    last axis, once, when all steps are done.
    """
    R: tl.constexpr = rows.shape[0]
    T: tl.constexpr = x.shape[0]
    N: tl.constexpr = SPANS * 128 // VEC
    q, scale, offset = parts(rows, table, n_blocks, first, SPANS)
    G: tl.constexpr = scale.shape[1] * scale.shape[2]
    product = q.reshape(1, R, SPANS * 128) * x[:, None, :]
    total = tl.sum(product.reshape(T, R, N, VEC), 3).reshape(T, R, G, N // G)
    total *= scale.reshape(1, scale.shape[0], G)[:, :, :, None]
    if HAS_OFFSET:
        sums = tl.sum(x.reshape(T, N, VEC), 2).reshape(T, 1, G, N // G)
        total += sums * offset.reshape(1, R, G)[:, :, :, None]
    return total.reshape(T, R, N)


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
    parts: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Tokens at `places` (TOKENS,) times the rows, spans first:end -> (TOKENS, ROWS) float32."""
    total = tl.zeros([TOKENS, ROWS], tl.float32)
    for s in range(first_span, end_span):
        x = load_many(places, s * 128 + tl.arange(0, 128), is_token, columns)
        w = unpack(rows, table, n_blocks, s, parts, HAS_OFFSET, 1).to(tl.float16)
        total = tl.dot(x, tl.trans(w), total)
    return total
