"""Products of activations with weights, straight from the bytes of the file."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from octavo.ops.gpu import quants, relay
from octavo.ops.gpu.branches import Branch
from octavo.ops.gpu.device import Tensor, empty, find
from octavo.ops.gpu.rows import (
    FEW_TOKENS,
    LEAST_TOKENS,
    SPAN,
    FewTile,
    ManyTile,
    fetch_rows,
    few_step,
    few_tile,
    is_whole,
    load_few,
    many_product,
    many_tile,
    to_half,
    weight_rows,
)
from octavo.ops.gpu.weights import device_bytes, floats
from octavo.ops.weight import Weight

MOST_WEIGHTS = 4  # of one launch

# From so many tokens on, activations are made half precision once and not by every program.
HALF_TOKENS = 64

RESIDENT = 4  # programs of the smallest tile that a processor should have at once


@triton.jit
def _of_program(
    program,
    w0, w1, w2, w3,
    b0, b1, b2, b3,
    n0, n1, n2, n3,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Which weight a program works on: its bytes, bias, rows, first column, and the first row."""
    w, bias, n_rows, column, first = w0, b0, n0, 0, program
    if first >= tl.cdiv(n0, ROWS):
        w, bias, n_rows, column, first = w1, b1, n1, n0, first - tl.cdiv(n0, ROWS)
        if first >= tl.cdiv(n1, ROWS):
            w, bias, n_rows, column, first = w2, b2, n2, n0 + n1, first - tl.cdiv(n1, ROWS)
            if first >= tl.cdiv(n2, ROWS):
                w, bias, n_rows, first = w3, b3, n3, first - tl.cdiv(n2, ROWS)
                column = n0 + n1 + n2
    return w, bias, n_rows, column, first * ROWS


@triton.jit
def _few(
    x, x_stride, out, out_stride,
    w0, w1, w2, w3,
    b0, b1, b2, b3,
    n0, n1, n2, n3,
    table, columns, n_tokens,
    parts: tl.constexpr,
    VEC: tl.constexpr,
    RUN: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    ROWS: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):  # fmt: skip
    w, bias, n_rows, column, first = _of_program(
        tl.program_id(0), w0, w1, w2, w3, b0, b1, b2, b3, n0, n1, n2, n3, ROWS
    )
    n_blocks = columns // ELEMENTS
    rows = weight_rows(w, n_rows, first, n_blocks * BYTES, ROWS)
    fetch_rows(w, n_rows, first, n_blocks * BYTES, ROWS)
    relay.take_over()
    end, last = columns, n_blocks
    if IS_WHOLE:
        end, last = None, None
    total = tl.zeros([TOKENS, ROWS, SPANS * 128 // VEC], tl.float32)
    for s in range(0, tl.cdiv(columns, 128), SPANS):
        xs = load_few(x, x_stride, n_tokens, s, end, RUN, VEC, SPANS, TOKENS)
        total += few_step(xs, rows, table, last, s, parts, HAS_OFFSET, VEC, SPANS)
    y = tl.sum(total, 2)
    row = first + tl.arange(0, ROWS)
    if HAS_BIAS:
        y += tl.load(bias + row, mask=row < n_rows, other=0.0)[None, :]
    t = tl.arange(0, TOKENS)
    places = out + t[:, None] * out_stride + (column + row)[None, :]
    tl.store(places, y, mask=(t < n_tokens)[:, None] & (row < n_rows)[None, :])


@triton.jit
def _many(
    x, x_stride, out, out_stride,
    w0, w1, w2, w3,
    b0, b1, b2, b3,
    n0, n1, n2, n3,
    table, columns, n_tokens, split_spans,
    parts: tl.constexpr,
    VEC: tl.constexpr,
    RUN: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    # Neighbouring programs share rows of the weight, which are then read from memory once.
    w, bias, n_rows, column, first = _of_program(
        tl.program_id(1), w0, w1, w2, w3, b0, b1, b2, b3, n0, n1, n2, n3, ROWS
    )
    n_blocks = columns // ELEMENTS
    rows = weight_rows(w, n_rows, first, n_blocks * BYTES, ROWS)
    t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    is_token = t < n_tokens
    places = x + t.to(tl.int64) * x_stride
    split = tl.program_id(2)
    end = tl.minimum((split + 1) * split_spans, tl.cdiv(columns, 128))
    y = many_product(
        places, is_token, rows, table, n_blocks, columns, split * split_spans, end, parts,
        HAS_OFFSET, TOKENS, ROWS,
    )  # fmt: skip
    row = first + tl.arange(0, ROWS)
    if HAS_BIAS:
        end = tl.where(split == 0, n_rows, 0)  # the first part alone adds it
        y += tl.load(bias + row, mask=row < end, other=0.0)[None, :]
    t = (split * n_tokens + t).to(tl.int64)
    places = out + t[:, None] * out_stride + (column + row)[None, :]
    tl.store(places, y, mask=is_token[:, None] & (row < n_rows)[None, :])


@triton.jit
def _halve(x, x_stride, out, columns, BLOCK: tl.constexpr):
    t, k = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + t * x_stride + k, mask=k < columns, other=0.0)
    tl.store(out + t * columns + k, to_half(value), mask=k < columns)


def linear(x: Tensor, weights: tuple[Weight, ...]) -> tuple[Tensor, ...]:
    """See `octavo.ops.linear`; weights of one format are computed together."""
    results: list[Tensor] = [None] * len(weights)
    given = halve(x) if len(x) >= HALF_TOKENS else x
    first, *more = _launches(weights)
    branches = [
        Branch(partial(_product, given, tuple(weights[i] for i in chunk))) for chunk in more
    ]
    products = [_product(given, tuple(weights[i] for i in first))]
    products += [branch.join() for branch in branches]
    for chunk, out in zip((first, *more), products, strict=True):
        column = 0
        for i in chunk:
            n_rows = weights[i].shape[0]
            results[i] = out[:, column : column + n_rows]
            column += n_rows
    return tuple(results)


def halve(x: Tensor) -> Tensor:
    """A half-precision copy of x (T, D); what is too large becomes the largest."""
    out = empty(*x.shape, dtype=torch.float16)
    block = 1024
    _halve[(triton.cdiv(x.shape[1], block), len(x))](x, x.stride(0), out, x.shape[1], block)
    return out


def _launches(weights: tuple[Weight, ...]) -> list[list[int]]:
    """Numbers of weights that one launch takes: of the same format, with a bias or without."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for i, w in enumerate(weights):
        kinds.setdefault((w.format, w.bias is None), []).append(i)
    return [
        numbers[start : start + MOST_WEIGHTS]
        for numbers in kinds.values()
        for start in range(0, len(numbers), MOST_WEIGHTS)
    ]


def _product(x: Tensor, weights: tuple[Weight, ...]) -> Tensor:
    """x (T, D) times weights of one format -> (T, all their rows)."""
    n_tokens, columns = x.shape
    n_rows = [w.shape[0] for w in weights]
    if n_tokens == 0:
        return empty(0, sum(n_rows))
    if n_tokens <= FEW_TOKENS:
        return few(x, weights, few_tile(sum(n_rows), columns, n_tokens))
    tile = many_tile(n_tokens)
    return many(x, weights, tile, _splits(n_tokens, n_rows, columns, tile))


def _splits(n_tokens: int, n_rows: list[int], columns: int, tile: ManyTile) -> int:
    """Into how many parts the columns are cut so that every processor has work.

    With few tokens the work is to read the weights, and one program asks for little at once:
    several have to be on every processor.
    """
    programs = triton.cdiv(n_tokens, tile.tokens) * sum(triton.cdiv(n, tile.rows) for n in n_rows)
    wanted, least_spans = (RESIDENT, 2) if tile.tokens == LEAST_TOKENS else (1, 4)
    n_spans = int(triton.cdiv(columns, SPAN))
    return max(1, min(wanted * find().n_processors // int(programs), n_spans // least_spans))


def few(x: Tensor, weights: tuple[Weight, ...], tile: FewTile) -> Tensor:
    """At most `FEW_TOKENS` tokens: `_product` with a given tile."""
    form = quants.find(weights[0].format)
    n_tokens, columns = x.shape
    n_rows = [w.shape[0] for w in weights]
    out = empty(n_tokens, sum(n_rows))
    grid = (sum(triton.cdiv(n, tile.rows) for n in n_rows),)
    _few[grid](
        x, x.stride(0), out, out.stride(0), *_of_weights(weights, out), form.table, columns,
        n_tokens, *form.constants, tile.rows, tile.spans,
        triton.next_power_of_2(n_tokens), weights[0].bias is not None,
        is_whole(columns, tile), num_warps=tile.warps, num_stages=1, **relay.options(),
    )  # fmt: skip
    return out


def many(x: Tensor, weights: tuple[Weight, ...], tile: ManyTile, n_splits: int) -> Tensor:
    """Many tokens: `_product` with a given tile, the columns cut into `n_splits` parts.

    The parts are summed in their order by a second launch, so results are the same every time.
    """
    form = quants.find(weights[0].format)
    n_tokens, columns = x.shape
    n_rows = [w.shape[0] for w in weights]
    split_spans = triton.cdiv(triton.cdiv(columns, SPAN), n_splits)
    parts = empty(n_splits, n_tokens, sum(n_rows))
    grid = (
        triton.cdiv(n_tokens, tile.tokens),
        sum(triton.cdiv(n, tile.rows) for n in n_rows),
        n_splits,
    )
    _many[grid](
        x, x.stride(0), parts, sum(n_rows), *_of_weights(weights, parts), form.table, columns,
        n_tokens, split_spans, *form.constants, tile.rows,
        tile.tokens, weights[0].bias is not None,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return parts[0] if n_splits == 1 else parts.sum(0)


def _of_weights(weights: tuple[Weight, ...], unused: Tensor) -> list[Any]:
    """Bytes, biases and numbers of rows of up to four weights, as the kernels take them."""
    spare = MOST_WEIGHTS - len(weights)
    data = [device_bytes(w) for w in weights]
    biases = [unused if w.bias is None else floats(w.bias) for w in weights]
    n_rows = [w.shape[0] for w in weights]
    return [*data, *data[:1] * spare, *biases, *biases[:1] * spare, *n_rows, *[0] * spare]
