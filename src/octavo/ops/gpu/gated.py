"""Gate, up and down: the kernels of the gated unit, for one (`glu`) and for many (`experts`).

Two launches: gate and up with the activation between them, then down with the weighted sum. An
expert's matrices lie at base + slot * stride; `slots`, where it is given, says the slot of each
expert, and -1 where it has none: such an expert adds nothing. So the tensors of a file and a pool
of slots in video memory are read by the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from octavo.ops.gpu import quants, relay
from octavo.ops.gpu.device import Tensor
from octavo.ops.gpu.rows import (
    fetch_rows,
    few_step,
    load_few,
    load_many,
    many_product,
    to_half,
    unpack,
    weight_rows,
)


@dataclass(frozen=True, eq=False)
class Matrices:
    """The same matrix of many experts: (rows, columns) each, `stride` bytes apart from `data` on.

    One that has no experts is the first of one.
    """

    format: quants.Format
    data: Tensor  # uint8; or an address
    stride: int
    rows: int
    columns: int


@triton.jit
def activate(gate, KIND: tl.constexpr):
    """SiLU, or GELU in its tanh form."""
    if KIND == "silu":
        return gate / (1.0 + tl.exp(-gate))
    inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
    # tanh(y) = 2 sigmoid(2 y) - 1
    return gate / (1.0 + tl.exp(-2.0 * inner))


@triton.jit
def slot_of(ids, slots, pair, HAS_IDS: tl.constexpr, HAS_SLOTS: tl.constexpr):
    """The slot of a token's choice number `pair`; -1: it is not here."""
    slot = tl.full([], 0, tl.int32)
    if HAS_IDS:
        slot = tl.load(ids + pair)
        if HAS_SLOTS:
            slot = tl.load(slots + slot)
    return slot


@triton.jit
def _put(out, y, token, n_tokens, first, n_rows):
    """y (TOKENS, ROWS) into out (T, n_rows) from `token` and row `first` on, as far as they go."""
    t, row = tl.arange(0, y.shape[0]), first + tl.arange(0, y.shape[1])
    mask = (t < n_tokens)[:, None] & (row < n_rows)[None, :]
    tl.store(out + (token + t)[:, None].to(tl.int64) * n_rows + row[None, :], y, mask=mask)


@triton.jit
def few_gate_up(
    x, x_stride, ids, slots, hidden, scale, factors,
    gate, gate_stride, gate_table, up, up_stride, up_table,
    n_rows, columns, n_tokens, n_used,
    gate_parts: tl.constexpr,
    GATE_VEC: tl.constexpr,
    GATE_RUN: tl.constexpr,
    GATE_HAS_OFFSET: tl.constexpr,
    GATE_ELEMENTS: tl.constexpr,
    GATE_BYTES: tl.constexpr,
    up_parts: tl.constexpr,
    UP_VEC: tl.constexpr,
    UP_RUN: tl.constexpr,
    UP_HAS_OFFSET: tl.constexpr,
    UP_ELEMENTS: tl.constexpr,
    UP_BYTES: tl.constexpr,
    KIND: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """hidden (pairs, n_rows) = act(gate x) * up x; with a scale, factors (T,) = sigmoid(scale . x).

    With ids, a program takes one pair of token and expert; without, TOKENS tokens.
    """
    first, pair = tl.program_id(0) * ROWS, tl.program_id(1) * TOKENS
    g_blocks, u_blocks = columns // GATE_ELEMENTS, columns // UP_ELEMENTS
    if not HAS_IDS:
        fetch_rows(gate, n_rows, first, g_blocks * GATE_BYTES, ROWS)
        fetch_rows(up, n_rows, first, u_blocks * UP_BYTES, ROWS)
    relay.take_over()
    slot = slot_of(ids, slots, pair, HAS_IDS, HAS_SLOTS).to(tl.int64)
    if slot >= 0:
        n_here = tl.minimum(TOKENS, n_tokens * n_used - pair)
        x += (pair // n_used).to(tl.int64) * x_stride
        g_rows = weight_rows(gate + slot * gate_stride, n_rows, first, g_blocks * GATE_BYTES, ROWS)
        u_rows = weight_rows(up + slot * up_stride, n_rows, first, u_blocks * UP_BYTES, ROWS)
        end, g_end, u_end = columns, g_blocks, u_blocks
        if IS_WHOLE:
            end, g_end, u_end = None, None, None
        g = tl.zeros([TOKENS, ROWS, SPANS * 128 // GATE_VEC], tl.float32)
        u = tl.zeros([TOKENS, ROWS, SPANS * 128 // UP_VEC], tl.float32)
        for s in range(0, tl.cdiv(columns, 128), SPANS):
            xs = load_few(x, x_stride, n_here, s, end, GATE_RUN, GATE_VEC, SPANS, TOKENS)
            g += few_step(
                xs, g_rows, gate_table, g_end, s, gate_parts, GATE_HAS_OFFSET, GATE_VEC, SPANS
            )
            if GATE_RUN != UP_RUN or GATE_VEC != UP_VEC:
                xs = load_few(x, x_stride, n_here, s, end, UP_RUN, UP_VEC, SPANS, TOKENS)
            u += few_step(xs, u_rows, up_table, u_end, s, up_parts, UP_HAS_OFFSET, UP_VEC, SPANS)
        y = activate(tl.sum(g, 2), KIND) * tl.sum(u, 2)
        _put(hidden, y, pair, n_here, first, n_rows)
        if HAS_SCALE:  # noqa: SIM102 (the compiler drops a branch by its constant alone)
            if tl.program_id(0) == 0:
                _put_factors(x, x_stride, n_here, scale, factors + pair, columns, TOKENS)


@triton.jit
def _put_factors(x, x_stride, n_tokens, scale, out, columns, TOKENS: tl.constexpr):
    """out (TOKENS,) = sigmoid(scale . x) of tokens."""
    total = tl.zeros([TOKENS, 1024], tl.float32)
    for s in range(0, tl.cdiv(columns, 128), 8):
        k = s * 128 + tl.arange(0, 1024)
        w = tl.load(scale + k, mask=k < columns, other=0.0)
        total += w[None, :] * load_few(x, x_stride, n_tokens, s, columns, 0, 4, 8, TOKENS)
    t = tl.arange(0, TOKENS)
    tl.store(out + t, 1.0 / (1.0 + tl.exp(-tl.sum(total, 1))), mask=t < n_tokens)


@triton.jit
def few_down(
    hidden, ids, slots, factors, out,
    down, stride, table,
    n_rows, columns, n_tokens, n_used,
    parts: tl.constexpr,
    VEC: tl.constexpr,
    RUN: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    HAS_FACTORS: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """out (T, n_rows): the sum over a token's pairs of factor * down(hidden), in their order.

    With ids, a program takes one token; without, TOKENS tokens of one pair each.
    """
    token = tl.program_id(1) * TOKENS
    first = tl.program_id(0) * ROWS
    n_here = tl.minimum(TOKENS, n_tokens - token)
    n_blocks = columns // ELEMENTS
    end, last = columns, n_blocks
    if IS_WHOLE:
        end, last = None, None
    if not HAS_IDS:
        fetch_rows(down, n_rows, first, n_blocks * BYTES, ROWS)
    relay.take_over()
    t = tl.arange(0, TOKENS)
    total = tl.zeros([TOKENS, ROWS, SPANS * 128 // VEC], tl.float32)
    for pair in range(token * n_used, token * n_used + n_used):
        slot = slot_of(ids, slots, pair, HAS_IDS, HAS_SLOTS)
        if slot >= 0:
            rows = weight_rows(
                down + slot.to(tl.int64) * stride, n_rows, first, n_blocks * BYTES, ROWS
            )
            h = hidden + pair * columns
            for s in range(0, tl.cdiv(columns, 128), SPANS):
                xs = load_few(h, columns, n_here, s, end, RUN, VEC, SPANS, TOKENS)
                if HAS_FACTORS:
                    xs *= tl.load(factors + pair + t, mask=t < n_here, other=0.0)[:, None]
                total += few_step(xs, rows, table, last, s, parts, HAS_OFFSET, VEC, SPANS)
    _put(out, tl.sum(total, 2), token, n_here, first, n_rows)


@triton.jit
def block_of_pairs(order, starts, blocks, n_pairs, TOKENS: tl.constexpr, HAS_IDS: tl.constexpr):
    """What a program of many tokens works on: pairs (TOKENS,), which of them count, the expert.

    With ids, `blocks` (n,) holds each block's expert, -1 beyond the last, and `starts` (n,) its
    first place in `order`; `order` (n_pairs,) the pairs sorted by expert, and after the blocks'
    starts come their ends. Without, pairs come in their order.
    """
    block = tl.program_id(0)
    place = block * TOKENS + tl.arange(0, TOKENS)
    if HAS_IDS:
        expert = tl.load(blocks + block)
        place = tl.load(starts + block) + tl.arange(0, TOKENS)
        counts = place < tl.load(starts + tl.num_programs(0) + block)
        return tl.load(order + place, mask=counts, other=0), counts, expert
    return place, place < n_pairs, tl.full([], 0, tl.int32)


@triton.jit
def many_gate_up(
    x, x_stride, order, starts, blocks, slots, hidden,
    gate, gate_stride, gate_table, up, up_stride, up_table,
    n_rows, columns, n_pairs, n_used,
    gate_parts: tl.constexpr,
    GATE_VEC: tl.constexpr,
    GATE_RUN: tl.constexpr,
    GATE_HAS_OFFSET: tl.constexpr,
    GATE_ELEMENTS: tl.constexpr,
    GATE_BYTES: tl.constexpr,
    up_parts: tl.constexpr,
    UP_VEC: tl.constexpr,
    UP_RUN: tl.constexpr,
    UP_HAS_OFFSET: tl.constexpr,
    UP_ELEMENTS: tl.constexpr,
    UP_BYTES: tl.constexpr,
    KIND: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """As `few_gate_up`, with hidden in half precision."""
    pair, counts, slot = block_of_pairs(order, starts, blocks, n_pairs, TOKENS, HAS_IDS)
    if HAS_SLOTS:  # noqa: SIM102
        if slot >= 0:
            slot = tl.load(slots + slot)
    if slot >= 0:
        first = tl.program_id(1) * ROWS
        g_blocks, u_blocks = columns // GATE_ELEMENTS, columns // UP_ELEMENTS
        g_rows = weight_rows(
            gate + slot.to(tl.int64) * gate_stride, n_rows, first, g_blocks * GATE_BYTES, ROWS
        )
        u_rows = weight_rows(
            up + slot.to(tl.int64) * up_stride, n_rows, first, u_blocks * UP_BYTES, ROWS
        )
        places = x + (pair // n_used).to(tl.int64) * x_stride
        g = tl.zeros([TOKENS, ROWS], tl.float32)
        u = tl.zeros([TOKENS, ROWS], tl.float32)
        for s in range(tl.cdiv(columns, 128)):
            xs = load_many(places, s * 128 + tl.arange(0, 128), counts, columns)
            w = unpack(g_rows, gate_table, g_blocks, s, gate_parts, GATE_HAS_OFFSET, 1)
            g = tl.dot(xs, tl.trans(w.to(tl.float16)), g)
            w = unpack(u_rows, up_table, u_blocks, s, up_parts, UP_HAS_OFFSET, 1)
            u = tl.dot(xs, tl.trans(w.to(tl.float16)), u)
        y = to_half(activate(g, KIND) * u)
        row = first + tl.arange(0, ROWS)
        mask = counts[:, None] & (row < n_rows)[None, :]
        tl.store(hidden + pair[:, None].to(tl.int64) * n_rows + row[None, :], y, mask=mask)


@triton.jit
def many_down(
    hidden, order, starts, blocks, slots, factors, out,
    down, stride, table,
    n_rows, columns, n_pairs,
    parts: tl.constexpr,
    VEC: tl.constexpr,
    RUN: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    HAS_FACTORS: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """out (pairs, n_rows) = factor * down(hidden), in the type of `out`; missing experts: zeros."""
    pair, counts, slot = block_of_pairs(order, starts, blocks, n_pairs, TOKENS, HAS_IDS)
    if slot >= 0:
        if HAS_SLOTS:
            slot = tl.load(slots + slot)
        first = tl.program_id(1) * ROWS
        n_blocks = columns // ELEMENTS
        rows = weight_rows(down + slot.to(tl.int64) * stride, n_rows, first, n_blocks * BYTES, ROWS)
        places = hidden + pair.to(tl.int64) * columns
        end = tl.where(slot >= 0, tl.cdiv(columns, 128), 0)
        y = many_product(
            places, counts, rows, table, n_blocks, columns, 0, end, parts, HAS_OFFSET,
            TOKENS, ROWS,
        )  # fmt: skip
        if HAS_FACTORS:
            y *= tl.load(factors + pair, mask=counts, other=0.0)[:, None]
        if out.dtype.element_ty == tl.float16:
            y = to_half(y)
        row = first + tl.arange(0, ROWS)
        mask = counts[:, None] & (row < n_rows)[None, :]
        tl.store(out + pair[:, None].to(tl.int64) * n_rows + row[None, :], y, mask=mask)


@triton.jit
def sum_pairs(pairs, out, columns, n_used, BLOCK: tl.constexpr):
    """out (T, columns) float32: the sum of each token's n_used rows of `pairs`, in their order."""
    t = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for j in range(n_used):
        places = pairs + (t * n_used + j) * columns + k
        total += tl.load(places, mask=k < columns, other=0.0).to(tl.float32)
    tl.store(out + t * columns + k, total, mask=k < columns)


def as_args(matrices: Matrices) -> tuple[Any, Any, Any]:
    """Base, stride and codebook, as the kernels take them."""
    return matrices.data, matrices.stride, matrices.format.table
