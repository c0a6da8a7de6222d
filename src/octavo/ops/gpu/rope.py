"""Rotary positions. Angles are reduced to one turn in float64: a position of 262,144 times a
frequency near 1 has no digits left after the point in float32."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from octavo.ops.gpu.device import Tensor, empty, to_device
from octavo.ops.weight import RopeTable

TURN = tl.constexpr(2 * np.pi)


@triton.jit
def _rope(
    x,
    positions,
    turns,
    out,
    x_token,
    x_head,
    n_heads,
    width,
    n_pairs,
    magnitude,
    IS_ADJACENT: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
):
    """One program a token and HEADS heads. `out` is (T, H, width), contiguous; `turns` are
    frequencies over a whole turn, float64 (n_pairs,)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    pair = tl.arange(0, PAIRS)
    position = tl.load(positions + token).to(tl.float64)
    turn = position * tl.load(turns + pair, mask=pair < n_pairs, other=0.0)
    angle = ((turn - tl.floor(turn)) * TURN).to(tl.float32)
    cos = (tl.cos(angle) * magnitude)[None, :]
    sin = (tl.sin(angle) * magnitude)[None, :]
    inside = (head < n_heads) & (pair < n_pairs)[None, :]
    if IS_ADJACENT:
        first, second = 2 * pair[None, :], 2 * pair[None, :] + 1
    else:
        first, second = pair[None, :], pair[None, :] + n_pairs
    source = x + token * x_token + head * x_head
    target = out + (token * n_heads + head) * width
    a = tl.load(source + first, mask=inside, other=0.0)
    b = tl.load(source + second, mask=inside, other=0.0)
    tl.store(target + first, a * cos - b * sin, mask=inside)
    tl.store(target + second, a * sin + b * cos, mask=inside)
    if REST:
        rest = 2 * n_pairs + tl.arange(0, REST)[None, :]
        kept = (head < n_heads) & (rest < width)
        tl.store(target + rest, tl.load(source + rest, mask=kept, other=0.0), mask=kept)


def rope(x: Tensor, positions: Tensor, table: RopeTable) -> Tensor:
    out = empty(*x.shape)
    if not x.numel():
        return out
    n_tokens, n_heads, width = x.shape
    n_pairs = len(table.frequencies)
    left = width - 2 * n_pairs
    heads = min(4, triton.next_power_of_2(n_heads))
    _rope[(n_tokens, triton.cdiv(n_heads, heads))](
        x,
        positions,
        _turns(table),
        out,
        x.stride(0),
        x.stride(1),
        n_heads,
        width,
        n_pairs,
        float(table.magnitude),
        IS_ADJACENT=table.pairing == "adjacent",
        HEADS=heads,
        PAIRS=triton.next_power_of_2(n_pairs),
        REST=triton.next_power_of_2(left) if left else 0,
        num_warps=4,
    )
    return out


def _turns(table: RopeTable) -> Tensor:
    """The table's frequencies on the device, in turns a position."""
    if "gpu" not in table.memo:
        table.memo["gpu"] = to_device(table.frequencies.astype(np.float64) / (2 * np.pi))
    return table.memo["gpu"]
