"""The routed experts of a layer.

Few tokens: each pair of token and expert is a program's own, two launches in all. Many: pairs are
sorted by expert on the device, in blocks that an expert fills alone, and a block is one tile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from octavo.ops.gpu import quants
from octavo.ops.gpu.device import Tensor, empty, find
from octavo.ops.gpu.gated import (
    Matrices,
    as_args,
    few_down,
    few_gate_up,
    many_down,
    many_gate_up,
    sum_pairs,
)
from octavo.ops.gpu.linear import halve
from octavo.ops.gpu.rows import few_tile, is_turing
from octavo.ops.gpu.weights import KEY, device_bytes
from octavo.ops.weight import ExpertBank, Weight

# Up to here hardly any two tokens share an expert, and sorting would gain nothing.
FEW_TOKENS = 8


class Bank(NamedTuple):
    """The experts of one layer on the device."""

    gate: Matrices
    up: Matrices
    down: Matrices
    kind: str
    n_experts: int


class Blocks(NamedTuple):
    """Pairs of token and expert in blocks of one expert each; see `gated.block_of_pairs`."""

    order: Tensor  # (pairs,) int32
    starts: Tensor  # (2, n_blocks) int32: first places and ends
    experts: Tensor  # (n_blocks,) int32, -1: an empty block
    tokens: int  # of a block


@triton.jit
def _sort(ids, order, starts, blocks, n_pairs, n_blocks, TOKENS: tl.constexpr, N: tl.constexpr):
    """Program e writes the pairs of expert e, in their order, and its blocks.

    Its first block is number (pairs before) // TOKENS + e: that leaves room for the blocks of
    those before whatever their numbers, so programs need not know of each other.
    """
    expert = tl.program_id(0)
    i = tl.arange(0, N)
    before = tl.zeros([N], tl.int32)
    own = tl.zeros([N], tl.int32)
    for start in range(0, n_pairs, N):
        chosen = tl.load(ids + start + i, mask=start + i < n_pairs, other=0x7FFFFFFF)
        before += (chosen < expert).to(tl.int32)
        own += (chosen == expert).to(tl.int32)
    first = tl.sum(before)
    end = first + tl.sum(own)
    place = first
    for start in range(0, n_pairs, N):
        is_own = (tl.load(ids + start + i, mask=start + i < n_pairs, other=-1) == expert).to(
            tl.int32
        )
        tl.store(order + place + tl.cumsum(is_own) - 1, start + i, mask=is_own == 1)
        place += tl.sum(is_own)
    block = first // TOKENS + expert
    next_block = end // TOKENS + expert + 1
    if expert == tl.num_programs(0) - 1:
        next_block = n_blocks
    for k in range(block, next_block):
        start = first + (k - block) * TOKENS
        tl.store(blocks + k, tl.where(start < end, expert, -1))
        tl.store(starts + k, start)
        tl.store(starts + n_blocks + k, end)


def sort_pairs(ids: Tensor, n_experts: int, block_tokens: int) -> Blocks:
    """ids (T, k) int32 -> blocks of pairs; nothing waits for the device."""
    n_pairs = ids.numel()
    n_blocks = n_pairs // block_tokens + n_experts
    order = empty(n_pairs, dtype=torch.int32)
    starts = empty(2, n_blocks, dtype=torch.int32)
    blocks = empty(n_blocks, dtype=torch.int32)
    _sort[(n_experts,)](ids, order, starts, blocks, n_pairs, n_blocks, block_tokens, 1024)
    return Blocks(order, starts, blocks, block_tokens)


def experts(x: Tensor, bank: ExpertBank, ids: Tensor, weights: Tensor) -> Tensor:
    """See `octavo.ops.experts`."""
    return weighted_sum(x, on_device(bank), ids, weights)


def weighted_sum(
    x: Tensor, bank: Bank, ids: Tensor, weights: Tensor, slots: Tensor | None = None
) -> Tensor:
    """`octavo.ops.experts` of those experts that have a slot: `slots` (E,) int32, -1 for none.

    Without `slots`, expert e lies in slot e.
    """
    if len(x) == 0:
        return empty(0, bank.down.rows)
    ids, weights = ids.contiguous(), weights.contiguous()
    run = _few if len(x) <= FEW_TOKENS else _many
    return run(x, bank, ids, weights, slots)


def on_device(bank: ExpertBank) -> Bank:
    """The tensors of the file as a bank whose slots are the experts."""
    if KEY not in bank.memo:
        n_experts, rows, _ = bank.gate.shape
        gate = _matrices(bank.gate)
        if bank.up is None:
            half = rows // 2
            skipped = gate.stride // 2
            up = Matrices(gate.format, gate.data[skipped:], gate.stride, half, gate.columns)
            gate = Matrices(gate.format, gate.data, gate.stride, half, gate.columns)
        else:
            up = _matrices(bank.up)
        bank.memo[KEY] = Bank(gate, up, _matrices(bank.down), bank.kind, n_experts)
    found: Bank = bank.memo[KEY]
    return found


def _matrices(w: Weight) -> Matrices:
    form = quants.find(w.format)
    _, rows, columns = w.shape
    stride = rows * columns // form.block_elements * form.block_bytes
    return Matrices(form, device_bytes(w), stride, rows, columns)


def _few(x: Tensor, bank: Bank, ids: Tensor, weights: Tensor, slots: Tensor | None) -> Tensor:
    n_tokens, n_used = ids.shape
    gate, down = bank.gate, bank.down
    hidden = empty(ids.numel(), gate.rows)
    table = ids if slots is None else slots
    tile = few_tile(gate.rows * ids.numel(), gate.columns, 1)
    few_gate_up[(triton.cdiv(gate.rows, tile.rows), ids.numel())](
        x, x.stride(0), ids, table, hidden, hidden, hidden, *as_args(gate), *as_args(bank.up),
        gate.rows, gate.columns, n_tokens, n_used, *gate.format.constants,
        *bank.up.format.constants, bank.kind, True, slots is not None, False, tile.rows,
        tile.spans, 1, num_warps=tile.warps, num_stages=1,
    )  # fmt: skip
    out = empty(n_tokens, down.rows)
    tile = few_tile(down.rows * n_tokens, down.columns, 1)
    few_down[(triton.cdiv(down.rows, tile.rows), n_tokens)](
        hidden, ids, table, weights, out, *as_args(down), down.rows, down.columns,
        n_tokens, n_used, *down.format.constants, True, slots is not None, True, tile.rows,
        tile.spans, 1, num_warps=tile.warps, num_stages=1,
    )  # fmt: skip
    return out


def _block_tokens(n_pairs: int, n_experts: int) -> int:
    """A block's last tile is half empty on average: small blocks for few pairs an expert."""
    mean = n_pairs / n_experts
    if mean <= 16 or is_turing():
        return 16
    return 32 if mean <= 48 or find().shared_bytes < 100_000 else 64


def _many(x: Tensor, bank: Bank, ids: Tensor, weights: Tensor, slots: Tensor | None) -> Tensor:
    n_tokens, n_used = ids.shape
    gate, down = bank.gate, bank.down
    order, starts, blocks, tokens = sort_pairs(
        ids, bank.n_experts, _block_tokens(ids.numel(), bank.n_experts)
    )
    table = ids if slots is None else slots
    given = halve(x)
    hidden = empty(ids.numel(), gate.rows, dtype=torch.float16)
    options: dict[str, Any] = {"num_warps": 4, "num_stages": 1 if is_turing() else 2}
    rows = 32 if is_turing() else 64
    many_gate_up[(len(blocks), triton.cdiv(gate.rows, rows))](
        given, given.stride(0), order, starts, blocks, table, hidden, *as_args(gate),
        *as_args(bank.up), gate.rows, gate.columns, ids.numel(), n_used, *gate.format.constants,
        *bank.up.format.constants, bank.kind, True, slots is not None, tokens, rows, **options,
    )  # fmt: skip
    pairs = empty(ids.numel(), down.rows, dtype=torch.float16)
    many_down[(len(blocks), triton.cdiv(down.rows, rows))](
        hidden, order, starts, blocks, table, weights, pairs, *as_args(down), down.rows,
        down.columns, ids.numel(), *down.format.constants, True, slots is not None, True, tokens,
        rows, **options,
    )  # fmt: skip
    out = empty(n_tokens, down.rows)
    block = 1024
    sum_pairs[(triton.cdiv(down.rows, block), n_tokens)](pairs, out, down.rows, n_used, block)
    return out
