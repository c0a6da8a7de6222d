"""Which experts a token goes to: router logits in float32, then the best k of each row.

Few tokens: one kernel, a program an expert; the last program to be done chooses, so nobody waits
for anybody. Many: torch multiplies, and a kernel chooses, a program a token.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from octavo.ops.gpu import relay
from octavo.ops.gpu.device import Tensor, empty, find
from octavo.ops.gpu.weights import floats
from octavo.ops.weight import RouteRule, Weight

FEW_TOKENS = 16
TILE_FLOATS = 2048  # activations that a program of few tokens holds at once
_LEAST = tl.constexpr(-(1 << 62))


@triton.jit
def _choose(
    logits,
    ids,
    weights,
    token,
    n_experts,
    scale,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    ALL: tl.constexpr,
    IS_SIGMOID: tl.constexpr,
    NORMALISE: tl.constexpr,
):
    """The K best of one row, best first, of equal ones the lower id first."""
    expert = tl.arange(0, ALL)
    inside = expert < n_experts
    # Past the first cache: other programs may have written the row just now.
    row = logits + token * n_experts + expert
    x = tl.load(row, mask=inside, other=float("-inf"), cache_modifier=".cg")
    # A float's bits, made to order like whole numbers; below them the id, lower ids larger.
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = tl.where(inside, order * 65536 + (65535 - expert), _LEAST)
    best = tl.max(x, axis=0)
    total = tl.sum(tl.where(inside, tl.exp(x - best), 0.0), axis=0)
    place = tl.arange(0, K_BLOCK)
    chosen = tl.zeros((K_BLOCK,), tl.int32)
    values = tl.zeros((K_BLOCK,), tl.float32)
    for i in tl.static_range(K):
        top = tl.max(key, axis=0)
        id = 65535 - (top & 65535).to(tl.int32)
        bits = (top >> 16).to(tl.int32)
        value = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)
        chosen = tl.where(place == i, id, chosen)
        values = tl.where(place == i, value, values)
        key = tl.where(expert == id, _LEAST, key)
    share = 1.0 / (1.0 + tl.exp(-values)) if IS_SIGMOID else tl.exp(values - best) / total
    share = tl.where(place < K, share, 0.0)
    if NORMALISE:
        share = share / tl.sum(share, axis=0)
    tl.store(ids + token * K + place, chosen, mask=place < K)
    tl.store(weights + token * K + place, share * scale, mask=place < K)


@triton.jit
def _few(
    x,
    gate,
    logits,
    counters,
    ids,
    weights,
    x_token,
    n_tokens,
    width,
    scale,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    ALL: tl.constexpr,
    IS_SIGMOID: tl.constexpr,
    NORMALISE: tl.constexpr,
):
    """Program (e, i) computes the logits of expert e for TOKENS tokens; the last one of i chooses.

    `counters` are zeros, and are left so.
    """
    expert, n_experts = tl.program_id(0), tl.num_programs(0)
    first = tl.program_id(1) * TOKENS
    token = first + tl.arange(0, TOKENS)
    is_token = token < n_tokens
    relay.fetch_ahead(gate + expert * width, width * 4)
    relay.take_over()
    sums = tl.zeros((TOKENS,), tl.float32)
    for start in range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        w = tl.load(gate + expert * width + i, mask=i < width, other=0.0)
        places = x + token[:, None] * x_token + i[None, :]
        a = tl.load(places, mask=is_token[:, None] & (i < width)[None, :], other=0.0)
        sums += tl.sum(a * w[None, :], axis=1)
    tl.store(logits + token * n_experts + expert, sums, mask=is_token)
    tl.debug_barrier()
    counter = counters + tl.program_id(1)
    if tl.atomic_add(counter, 1) == n_experts - 1:
        tl.store(counter, 0)
        for t in range(first, tl.minimum(first + TOKENS, n_tokens)):
            _choose(
                logits, ids, weights, t, n_experts, scale, K, K_BLOCK, ALL, IS_SIGMOID, NORMALISE
            )


@triton.jit
def _many(
    logits,
    ids,
    weights,
    n_experts,
    scale,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    ALL: tl.constexpr,
    IS_SIGMOID: tl.constexpr,
    NORMALISE: tl.constexpr,
):
    token = tl.program_id(0)
    _choose(logits, ids, weights, token, n_experts, scale, K, K_BLOCK, ALL, IS_SIGMOID, NORMALISE)


def route(x: Tensor, gate: Weight, rule: RouteRule) -> tuple[Tensor, Tensor]:
    """See `octavo.ops.route`."""
    n_tokens, width = x.shape
    n_experts, k = gate.shape[0], rule.n_used
    ids = empty(n_tokens, k, dtype=torch.int32)
    weights = empty(n_tokens, k)
    meaning: dict[str, Any] = {
        "K": k,
        "K_BLOCK": triton.next_power_of_2(k),
        "ALL": triton.next_power_of_2(n_experts),
        "IS_SIGMOID": rule.activation == "sigmoid",
        "NORMALISE": rule.normalise,
        "num_warps": 1,
    }
    if n_tokens > FEW_TOKENS:
        logits = x @ floats(gate).T
        _many[(n_tokens,)](logits, ids, weights, n_experts, rule.scale, **meaning)
    elif n_tokens:
        tokens = min(triton.next_power_of_2(n_tokens), 4)
        _few[(n_experts, triton.cdiv(n_tokens, tokens))](
            *(x, floats(gate), empty(n_tokens, n_experts), _counters(), ids, weights),
            *(x.stride(0), n_tokens, width, rule.scale),
            TOKENS=tokens,
            BLOCK=min(triton.next_power_of_2(width), TILE_FLOATS // tokens),
            **meaning,
            **relay.options(),
        )
    return ids, weights


@cache
def _counters() -> Tensor:
    """Zeros that programs count in."""
    return torch.zeros(FEW_TOKENS, dtype=torch.int32, device=find().torch_device)
