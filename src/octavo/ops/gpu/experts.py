"""The routed experts of a layer.

Few tokens: each pair of token and expert is a program's own, two launches in all. Many: pairs are
sorted by expert on the device, in blocks that an expert fills alone, and a block is one tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from octavo.ops.gpu import quants, relay
from octavo.ops.gpu.arrange import add
from octavo.ops.gpu.branches import Branch
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
from octavo.ops.gpu.rows import few_tile, is_turing, is_whole
from octavo.ops.gpu.weights import KEY, device_bytes
from octavo.ops.weight import ExpertBank, Weight

# Up to here hardly any two tokens share an expert, and sorting would gain nothing.
FEW_TOKENS = 8
SPLIT = "gpu split"  # of `ExpertBank.memo`: (`split.Split`, block), where not all are here


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


def experts(
    x: Tensor,
    bank: ExpertBank,
    ids: Tensor,
    weights: Tensor,
    beside: Callable[[], Tensor] | None = None,
) -> Tensor:
    """See `octavo.ops.experts`."""
    if SPLIT in bank.memo:
        split, block = bank.memo[SPLIT]
        found: Tensor = split.run(block, x, ids, weights, beside)
        return found
    branch = None if beside is None else Branch(beside)
    routed = weighted_sum(x, on_device(bank), ids, weights)
    return routed if branch is None else add(routed, branch.join())


def weighted_sum(
    x: Tensor, bank: Bank, ids: Tensor, weights: Tensor, slots: Tensor | None = None
) -> Tensor:
    """`octavo.ops.experts` of those experts that have a slot: `slots` (E,) int32, -1 for none.

    Without `slots`, expert e lies in slot e.
    """
    if len(x) == 0:
        return empty(0, bank.down.rows)
    ids, weights = ids.contiguous(), weights.contiguous()
    if len(x) <= FEW_TOKENS:
        return _few(x, bank, ids, weights, slots)
    many = ManyTokens(x, bank, ids, weights)
    many.add(bank, many.blocks.experts, slots)
    return many.total()


def on_device(bank: ExpertBank) -> Bank:
    """The tensors of the file as a bank whose slots are the experts."""
    if KEY not in bank.memo:
        sizes = expert_bytes(bank)
        data = [device_bytes(w) for w in matrices_of(bank)]
        bank.memo[KEY] = bank_of(bank, data, sizes)
    found: Bank = bank.memo[KEY]
    return found


def matrices_of(bank: ExpertBank) -> list[Weight]:
    """Gate, up and down; gate with up, and down, where a file has those two in one."""
    return [w for w in (bank.gate, bank.up, bank.down) if w is not None]


def expert_bytes(bank: ExpertBank) -> list[int]:
    """Of one expert in each of these."""
    forms = [quants.find(w.format) for w in matrices_of(bank)]
    return [
        w.shape[1] * w.shape[2] // form.block_elements * form.block_bytes
        for w, form in zip(matrices_of(bank), forms, strict=True)
    ]


def bank_of(bank: ExpertBank, data: Sequence[Tensor | int], strides: Sequence[int]) -> Bank:
    """A bank whose matrices begin at `data`, an expert's so many bytes behind another's.

    `data` are tensors of bytes, or addresses of main memory that the card reads in place.
    """
    n_experts, rows, _ = bank.gate.shape
    gate, *up, down = [
        Matrices(quants.find(w.format), start, stride, *w.shape[1:])
        for w, start, stride in zip(matrices_of(bank), data, strides, strict=True)
    ]
    if not up:
        skipped = expert_bytes(bank)[0] // 2
        data_up = gate.data + skipped if isinstance(gate.data, int) else gate.data[skipped:]
        up = [replace(gate, data=data_up, rows=rows // 2)]
        gate = replace(gate, rows=rows // 2)
    return Bank(gate, up[0], down, bank.kind, n_experts)


def _few(x: Tensor, bank: Bank, ids: Tensor, weights: Tensor, slots: Tensor | None) -> Tensor:
    n_tokens, n_used = ids.shape
    gate, down = bank.gate, bank.down
    hidden = empty(ids.numel(), gate.rows)
    table = ids if slots is None else slots
    tile = few_tile(gate.rows * ids.numel(), gate.columns, 1)
    few_gate_up[(triton.cdiv(gate.rows, tile.rows), ids.numel())](
        x, x.stride(0), ids, table, hidden, hidden, hidden, *as_args(gate), *as_args(bank.up),
        gate.rows, gate.columns, n_tokens, n_used, *gate.format.constants,
        *bank.up.format.constants, bank.kind, True, slots is not None, False,
        is_whole(gate.columns, tile), tile.rows,
        tile.spans, 1, num_warps=tile.warps, num_stages=1, **relay.options(),
    )  # fmt: skip
    out = empty(n_tokens, down.rows)
    tile = few_tile(down.rows * n_tokens, down.columns, 1)
    few_down[(triton.cdiv(down.rows, tile.rows), n_tokens)](
        hidden, ids, table, weights, out, *as_args(down), down.rows, down.columns,
        n_tokens, n_used, *down.format.constants, True, slots is not None, True,
        is_whole(down.columns, tile), tile.rows,
        tile.spans, 1, num_warps=tile.warps, num_stages=1, **relay.options(),
    )  # fmt: skip
    return out


def _block_tokens(n_pairs: int, n_experts: int) -> int:
    """A block's last tile is half empty on average: small blocks for few pairs an expert."""
    mean = n_pairs / n_experts
    if mean <= 16 or is_turing():
        return 16
    return 32 if mean <= 48 or find().shared_bytes < 100_000 else 64


class ManyTokens:
    """Pairs sorted into blocks, and room for their results, which may come part by part.

    What a pair gets does not depend on which part computes it.
    """

    def __init__(
        self, x: Tensor, bank: Bank, ids: Tensor, weights: Tensor, *, has_gaps: bool = False
    ) -> None:
        """All of x (T, D), ids and weights (T, k) contiguous; `bank` for its shapes alone.

        `has_gaps`: pairs that nobody computes here count as zeros.
        """
        n_pairs = ids.numel()
        self.blocks = sort_pairs(ids, bank.n_experts, _block_tokens(n_pairs, bank.n_experts))
        self._shape = ids.shape
        self._given, self._weights = halve(x), weights
        self._hidden = empty(n_pairs, bank.gate.rows, dtype=torch.float16)
        self._pairs = empty(n_pairs, bank.down.rows, dtype=torch.float16)
        if has_gaps:
            self._pairs.zero_()

    def add(self, bank: Bank, slots_of: Tensor, slots: Tensor | None = None) -> None:
        """Compute those blocks that have a slot in `slots_of` (blocks,), of this bank.

        With `slots` (E,), `slots_of` holds experts, and pairs of those without a slot get zeros.
        """
        n_pairs, n_used = self._pairs.shape[0], self._shape[1]
        gate, down, given = bank.gate, bank.down, self._given
        order, starts, tokens = self.blocks.order, self.blocks.starts, self.blocks.tokens
        table = slots_of if slots is None else slots
        options: dict[str, Any] = {"num_warps": 4, "num_stages": 1 if is_turing() else 2}
        rows = 32 if is_turing() else 64
        many_gate_up[(len(slots_of), triton.cdiv(gate.rows, rows))](
            given, given.stride(0), order, starts, slots_of, table, self._hidden, *as_args(gate),
            *as_args(bank.up), gate.rows, gate.columns, n_pairs, n_used, *gate.format.constants,
            *bank.up.format.constants, bank.kind, True, slots is not None, tokens, rows, **options,
        )  # fmt: skip
        many_down[(len(slots_of), triton.cdiv(down.rows, rows))](
            self._hidden, order, starts, slots_of, table, self._weights, self._pairs,
            *as_args(down), down.rows, down.columns, n_pairs, *down.format.constants, True,
            slots is not None, True, tokens, rows, **options,
        )  # fmt: skip

    def total(self) -> Tensor:
        """(T, D): the sums of the tokens' pairs, once all of these have been computed."""
        n_tokens, n_used = self._shape
        out = empty(n_tokens, self._pairs.shape[1])
        block = 1024
        sum_pairs[(triton.cdiv(out.shape[1], block), n_tokens)](
            self._pairs, out, out.shape[1], n_used, block
        )
        return out
