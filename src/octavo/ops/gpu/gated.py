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

from octavo.ops.gpu import quants
from octavo.ops.gpu.device import Tensor
from octavo.ops.gpu.overlap import wait_for_inputs
from octavo.ops.gpu.rows import (
    few_product,
    few_step,
    load_few,
    load_many,
    many_product,
    pointers,
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
    data: Tensor  # uint8
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
    ROWS: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """hidden (pairs, n_rows) = act(gate x) * up x; with a scale, factors (T,) = sigmoid(scale . x).

    With ids, a program takes one pair of token and expert; without, TOKENS tokens. With a scale,
    the last of the programs that share tokens computes their factors.
    """
    pair = tl.program_id(1) * TOKENS
    slot = tl.full([], 0, tl.int32)
    if HAS_IDS:
        wait_for_inputs()
        slot = tl.load(ids + pair)
        if HAS_SLOTS:
            slot = tl.load(slots + slot)
    n_here = tl.minimum(TOKENS, n_tokens * n_used - pair)
    x += (pair // n_used).to(tl.int64) * x_stride
    first = tl.program_id(0) * ROWS
    t, row = tl.arange(0, TOKENS), first + tl.arange(0, ROWS)
    if HAS_SCALE and first >= n_rows:
        wait_for_inputs()
        factor = _factors(x, x_stride, n_here, scale, columns, TOKENS)
        tl.store(factors + pair + t, factor, mask=t < n_here)
    elif slot >= 0:
        gate += slot.to(tl.int64) * gate_stride
        up += slot.to(tl.int64) * up_stride
        g_blocks, u_blocks = columns // GATE_ELEMENTS, columns // UP_ELEMENTS
        if gate_parts == up_parts:
            # Rows of gate and up in turn, so that all is loaded before any of it is waited for.
            both = first + tl.arange(0, 2 * ROWS) // 2
            rows = tl.where(
                tl.arange(0, 2 * ROWS) % 2 == 0,
                pointers(gate, n_rows, both, g_blocks * GATE_BYTES),
                pointers(up, n_rows, both, g_blocks * GATE_BYTES),
            )
            y = few_product(
                x, x_stride, n_here, rows, gate_table, g_blocks, columns, gate_parts, GATE_VEC,
                GATE_RUN, GATE_HAS_OFFSET, SPANS, TOKENS, EXACT, not HAS_IDS,
            )  # fmt: skip
            g, u = tl.split(y.reshape(TOKENS, ROWS, 2))
        else:
            g = few_product(
                x, x_stride, n_here, pointers(gate, n_rows, row, g_blocks * GATE_BYTES), gate_table,
                g_blocks, columns, gate_parts, GATE_VEC, GATE_RUN, GATE_HAS_OFFSET, SPANS, TOKENS,
                EXACT, not HAS_IDS,
            )  # fmt: skip
            u = few_product(
                x, x_stride, n_here, pointers(up, n_rows, row, u_blocks * UP_BYTES), up_table,
                u_blocks, columns, up_parts, UP_VEC, UP_RUN, UP_HAS_OFFSET, SPANS, TOKENS, EXACT,
                False,
            )  # fmt: skip
        mask = (t < n_here)[:, None] & (row < n_rows)[None, :]
        places = hidden + (pair + t)[:, None].to(tl.int64) * n_rows + row[None, :]
        tl.store(places, activate(g, KIND) * u, mask=mask)
    else:  # so that sums need not tell what was never written
        places = hidden + (pair + t)[:, None].to(tl.int64) * n_rows + row[None, :]
        zeros = tl.zeros([TOKENS, ROWS], tl.float32)
        tl.store(places, zeros, mask=(t < n_here)[:, None] & (row < n_rows)[None, :])


@triton.jit
def _factors(x, x_stride, n_tokens, scale, columns, TOKENS: tl.constexpr):
    """sigmoid(scale . x) of tokens: (TOKENS,)."""
    total = tl.zeros([TOKENS, 1024], tl.float32)
    for s in range(0, tl.cdiv(columns, 128), 8):
        k = s * 128 + tl.arange(0, 1024)
        w = tl.load(scale + k, mask=k < columns, other=0.0)
        total += w[None, :] * load_few(x, x_stride, n_tokens, s, columns, 0, 4, 8, TOKENS, False)
    return 1.0 / (1.0 + tl.exp(-tl.sum(total, 1)))


@triton.jit
def few_down(
    hidden, factors, out, down, table, n_rows, columns, n_tokens,
    parts: tl.constexpr,
    VEC: tl.constexpr,
    RUN: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    HAS_FACTORS: tl.constexpr,
    ROWS: tl.constexpr,
    SPANS: tl.constexpr,
    TOKENS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """out (T, n_rows): down(hidden) of tokens, times their factors."""
    first = tl.program_id(0) * ROWS
    n_blocks = columns // ELEMENTS
    rows = weight_rows(down, n_rows, first, n_blocks * BYTES, ROWS)
    y = few_product(
        hidden, columns, n_tokens, rows, table, n_blocks, columns, parts, VEC, RUN, HAS_OFFSET,
        SPANS, TOKENS, EXACT, True,
    )  # fmt: skip
    t, row = tl.arange(0, TOKENS), first + tl.arange(0, ROWS)
    if HAS_FACTORS:
        y *= tl.load(factors + t, mask=t < n_tokens, other=0.0)[:, None]
    mask = (t < n_tokens)[:, None] & (row < n_rows)[None, :]
    tl.store(out + t[:, None] * n_rows + row[None, :], y, mask=mask)


@triton.jit
def pairs_down(
    hidden, ids, slots, factors, out, down, stride, table, n_rows, columns, n_used,
    parts: tl.constexpr,
    VEC: tl.constexpr,
    RUN: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
    SPANS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """out (T, n_rows): the sum over a token's pairs of factor * down(hidden).

    A program reads its rows of all the token's experts at once: PAIRS of them, n_used count.
    """
    wait_for_inputs()
    token, first = tl.program_id(1), tl.program_id(0) * ROWS
    n_blocks = columns // ELEMENTS
    pair = tl.arange(0, PAIRS)
    factor = tl.load(factors + token * n_used + pair, mask=pair < n_used, other=0.0)
    each = tl.arange(0, ROWS * PAIRS)
    slot = tl.load(ids + token * n_used + each % PAIRS, mask=each % PAIRS < n_used, other=-1)
    if HAS_SLOTS:
        slot = tl.load(slots + slot, mask=slot >= 0, other=-1)
    own = down + tl.maximum(slot, 0).to(tl.int64) * stride
    rows = pointers(own, n_rows, first + each // PAIRS, n_blocks * BYTES)
    total = tl.zeros([1, ROWS * PAIRS, SPANS * 128 // VEC], tl.float32)
    hidden += token * n_used * columns
    for s in range(0, tl.cdiv(columns, 128), SPANS):
        q, scale, offset = parts(rows, table, n_blocks, s, SPANS, EXACT)
        xs = load_few(hidden, columns, n_used, s, columns, RUN, VEC, SPANS, PAIRS, EXACT)
        xs = (xs * factor[:, None])[None, :, :].broadcast_to(ROWS, PAIRS, SPANS * 128)
        xs = xs.reshape(1, ROWS * PAIRS, SPANS * 128)
        total = few_step(total, xs, q, scale, offset, HAS_OFFSET, VEC)
    # Whatever lies in the place of an expert that is not here: it is not looked at.
    y = tl.where(slot[None, :] >= 0, tl.sum(total, 2), 0.0).reshape(ROWS, PAIRS)
    row = first + tl.arange(0, ROWS)
    tl.store(out + token * n_rows + row, tl.sum(y, 1), mask=row < n_rows)


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
    EXACT: tl.constexpr,
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
            xs = load_many(places, s * 128 + tl.arange(0, 128), counts, columns, EXACT)
            w = unpack(g_rows, gate_table, g_blocks, s, gate_parts, GATE_HAS_OFFSET, 1, EXACT)
            g = tl.dot(xs, tl.trans(w.to(tl.float16)), g)
            w = unpack(u_rows, up_table, u_blocks, s, up_parts, UP_HAS_OFFSET, 1, EXACT)
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
    EXACT: tl.constexpr,
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
            TOKENS, ROWS, EXACT,
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
