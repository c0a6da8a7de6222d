"""Rotary positions of queries and keys, with the norm of each head before, in one launch.

Angles are reduced to one turn in float64: a position of 262,144 times a frequency near 1 has few
digits left after the point in float32.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from octavo.ops.gpu import relay
from octavo.ops.gpu.device import Tensor, empty, to_device
from octavo.ops.gpu.weights import floats
from octavo.ops.weight import RopeTable, Weight

TURN = tl.constexpr(2 * np.pi)
HEADS_OF_PROGRAM = 4


@triton.jit
def _rope(
    q, k, q_weight, k_weight, positions, turns, q_out, k_out,
    q_token, q_head, k_token, k_head, n_q, n_k, width, n_pairs, magnitude, eps,
    IS_ADJACENT: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
):  # fmt: skip
    """One program a token and HEADS heads, first those of q, then those of k. Outputs are
    (T, heads, width), contiguous; `turns` are frequencies over a whole turn, float64 (n_pairs,)."""
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    q_blocks = tl.cdiv(n_q, HEADS)
    is_key = block >= q_blocks
    source, target, weight = q, q_out, q_weight
    if is_key:
        source, target, weight = k, k_out, k_weight
    n_heads = tl.where(is_key, n_k, n_q)
    head = tl.where(is_key, block - q_blocks, block) * HEADS + tl.arange(0, HEADS)[:, None]
    source += token * tl.where(is_key, k_token, q_token) + head * tl.where(is_key, k_head, q_head)
    target += (token * n_heads + head) * width

    pair = tl.arange(0, PAIRS)
    turn = tl.load(turns + pair, mask=pair < n_pairs, other=0.0)
    relay.take_over()
    turn *= tl.load(positions + token).to(tl.float64)
    angle = ((turn - tl.floor(turn)) * TURN).to(tl.float32)
    cos = (tl.cos(angle) * magnitude)[None, :]
    sin = (tl.sin(angle) * magnitude)[None, :]

    pair = pair[None, :]
    if IS_ADJACENT:
        first, second = 2 * pair, 2 * pair + 1
    else:
        first, second = pair, pair + n_pairs
    inside = (head < n_heads) & (pair < n_pairs)
    a = tl.load(source + first, mask=inside, other=0.0)
    b = tl.load(source + second, mask=inside, other=0.0)
    if REST:
        rest = 2 * n_pairs + tl.arange(0, REST)[None, :]
        kept = (head < n_heads) & (rest < width)
        c = tl.load(source + rest, mask=kept, other=0.0)
    if HAS_NORM:
        squares = tl.sum(a * a + b * b, axis=1)
        if REST:
            squares += tl.sum(c * c, axis=1)
        root = tl.sqrt(squares / width + eps)[:, None]
        a = a / root * tl.load(weight + first, mask=pair < n_pairs, other=0.0)
        b = b / root * tl.load(weight + second, mask=pair < n_pairs, other=0.0)
        if REST:
            c = c / root * tl.load(weight + rest, mask=rest < width, other=0.0)
    tl.store(target + first, a * cos - b * sin, mask=inside)
    tl.store(target + second, a * sin + b * cos, mask=inside)
    if REST:
        tl.store(target + rest, c, mask=kept)


def rope(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    table: RopeTable,
    norms: tuple[Weight, Weight] | None = None,
    eps: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """See `octavo.ops.rope`."""
    outs = empty(*q.shape), empty(*k.shape)
    n_tokens, n_q, width = q.shape
    if not n_tokens:
        return outs
    n_k, n_pairs = k.shape[1], len(table.frequencies)
    left = width - 2 * n_pairs
    heads = min(HEADS_OF_PROGRAM, triton.next_power_of_2(max(n_q, n_k)))
    weights = (q, k) if norms is None else (floats(norms[0]), floats(norms[1]))
    _rope[(n_tokens, triton.cdiv(n_q, heads) + triton.cdiv(n_k, heads))](
        *(q, k, *weights, positions, _turns(table), *outs),
        *(*q.stride()[:2], *k.stride()[:2], n_q, n_k, width, n_pairs),
        *(float(table.magnitude), eps),
        IS_ADJACENT=table.pairing == "adjacent",
        HAS_NORM=norms is not None,
        HEADS=heads,
        PAIRS=triton.next_power_of_2(n_pairs),
        REST=triton.next_power_of_2(left) if left else 0,
        num_warps=4,
        **relay.options(),
    )
    return outs


def _turns(table: RopeTable) -> Tensor:
    """The table's frequencies on the device, in turns a position."""
    if "gpu" not in table.memo:
        table.memo["gpu"] = to_device(table.frequencies.astype(np.float64) / (2 * np.pi))
    return table.memo["gpu"]
