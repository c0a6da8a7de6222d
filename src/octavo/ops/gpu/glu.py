"""The gated unit of dense layers and of shared experts."""

from __future__ import annotations

from typing import Any

import torch
import triton

from octavo.ops.gpu import quants, relay
from octavo.ops.gpu.device import Tensor, empty
from octavo.ops.gpu.gated import (
    Matrices,
    as_args,
    few_down,
    few_gate_up,
    many_down,
    many_gate_up,
)
from octavo.ops.gpu.linear import HALF_TOKENS, halve
from octavo.ops.gpu.rows import FEW_TOKENS, few_tile, is_whole, many_tile
from octavo.ops.gpu.weights import device_bytes, floats
from octavo.ops.weight import Weight


def glu(
    x: Tensor, gate: Weight, up: Weight, down: Weight, kind: str, scale: Weight | None = None
) -> Tensor:
    """See `octavo.ops.glu`: one launch for gate and up, one for down."""
    run = _few if len(x) <= FEW_TOKENS else _many
    factor = None if scale is None else floats(scale)
    if len(x) == 0:
        return empty(0, down.shape[0])
    return run(x, _matrix(gate), _matrix(up), _matrix(down), kind, factor)


def _matrix(w: Weight) -> Matrices:
    return Matrices(quants.find(w.format), device_bytes(w), 0, *w.shape)


def _few(
    x: Tensor, gate: Matrices, up: Matrices, down: Matrices, kind: str, scale: Tensor | None
) -> Tensor:
    n_tokens = len(x)
    tokens = triton.next_power_of_2(n_tokens)
    hidden, factors = empty(n_tokens, gate.rows), empty(n_tokens)
    tile = few_tile(gate.rows, gate.columns, tokens)
    few_gate_up[(triton.cdiv(gate.rows, tile.rows), 1)](
        x, x.stride(0), x, x, hidden, factors if scale is None else scale, factors,
        *as_args(gate), *as_args(up), gate.rows, gate.columns, n_tokens, 1, *gate.format.constants,
        *up.format.constants, kind, False, False, scale is not None,
        is_whole(gate.columns, tile), tile.rows, tile.spans, tokens,
        num_warps=tile.warps, num_stages=1, **relay.options(),
    )  # fmt: skip
    out = empty(n_tokens, down.rows)
    tile = few_tile(down.rows, down.columns, tokens)
    few_down[(triton.cdiv(down.rows, tile.rows), 1)](
        hidden, x, x, factors, out, *as_args(down), down.rows, down.columns, n_tokens, 1,
        *down.format.constants, False, False, scale is not None, is_whole(down.columns, tile),
        tile.rows, tile.spans, tokens,
        num_warps=tile.warps, num_stages=1, **relay.options(),
    )  # fmt: skip
    return out


def _many(
    x: Tensor, gate: Matrices, up: Matrices, down: Matrices, kind: str, scale: Tensor | None
) -> Tensor:
    n_tokens = len(x)
    factors = x if scale is None else torch.sigmoid(torch.mv(x, scale))
    given = halve(x) if n_tokens >= HALF_TOKENS else x
    hidden = empty(n_tokens, gate.rows, dtype=torch.float16)
    tile = many_tile(n_tokens)
    options: dict[str, Any] = {"num_warps": tile.warps, "num_stages": tile.stages}
    rows = tile.rows // 2  # of gate and of up
    n_blocks = triton.cdiv(n_tokens, tile.tokens)
    many_gate_up[(n_blocks, triton.cdiv(gate.rows, rows))](
        given, given.stride(0), x, x, x, x, hidden, *as_args(gate), *as_args(up), gate.rows,
        gate.columns, n_tokens, 1, *gate.format.constants, *up.format.constants, kind, False, False,
        tile.tokens, rows, **options,
    )  # fmt: skip
    out = empty(n_tokens, down.rows)
    many_down[(n_blocks, triton.cdiv(down.rows, tile.rows))](
        hidden, x, x, x, x, factors, out, *as_args(down), down.rows, down.columns, n_tokens,
        *down.format.constants, False, False, scale is not None, tile.tokens, tile.rows, **options,
    )  # fmt: skip
    return out
