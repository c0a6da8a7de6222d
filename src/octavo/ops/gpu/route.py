"""Which experts a token goes to: router logits in float32, then the best k of each row.

Two kernels: the matrix product spreads over the device, the choice is one program a token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from octavo.ops.gpu.device import Tensor, empty
from octavo.ops.gpu.weights import floats
from octavo.ops.weight import RouteRule, Weight


@triton.jit
def _logits(
    x,
    weight,
    out,
    x_token,
    n_tokens,
    n_experts,
    width,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out (T, E) = x (T, D) times weight (E, D) transposed; one program a tile."""
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.program_id(0) * EXPERTS + tl.arange(0, EXPERTS)
    sums = tl.zeros((TOKENS, EXPERTS), tl.float32)
    for start in range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = (i < width)[None, :]
        rows = x + token.to(tl.int64)[:, None] * x_token + i[None, :]
        a = tl.load(rows, mask=inside & (token < n_tokens)[:, None], other=0.0)
        places = weight + expert[:, None] * width + i[None, :]
        b = tl.load(places, mask=inside & (expert < n_experts)[:, None], other=0.0)
        sums += tl.sum(a[:, None, :] * b[None, :, :], axis=2)
    inside = (token < n_tokens)[:, None] & (expert < n_experts)[None, :]
    tl.store(out + token.to(tl.int64)[:, None] * n_experts + expert[None, :], sums, mask=inside)


@triton.jit
def _choose(
    logits,
    ids,
    weights,
    n_experts,
    scale,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_SIGMOID: tl.constexpr,
    NORMALISE: tl.constexpr,
):
    """The K best of one row, best first, of equal ones the lower id first."""
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, BLOCK)
    inside = expert < n_experts
    x = tl.load(logits + token * n_experts + expert, mask=inside, other=float("-inf"))
    # A float's bits, made to order like whole numbers; below them the id, lower ids larger.
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = order * 65536 + (65535 - expert)
    key = tl.where(inside, key, -(1 << 62))
    best = tl.max(x, axis=0)
    total = tl.sum(tl.where(inside, tl.exp(x - best), 0.0), axis=0)
    place = tl.arange(0, K_BLOCK)
    chosen = tl.zeros((K_BLOCK,), tl.int32)
    values = tl.zeros((K_BLOCK,), tl.float32)
    for i in tl.static_range(K):
        top = tl.max(key, axis=0)
        id = 65535 - (top & 65535).to(tl.int32)
        value = tl.sum(tl.where(expert == id, x, 0.0), axis=0)
        chosen = tl.where(place == i, id, chosen)
        values = tl.where(place == i, value, values)
        key = tl.where(expert == id, -(1 << 62), key)
    share = 1.0 / (1.0 + tl.exp(-values)) if IS_SIGMOID else tl.exp(values - best) / total
    share = tl.where(place < K, share, 0.0)
    if NORMALISE:
        share = share / tl.sum(share, axis=0)
    tl.store(ids + token * K + place, chosen, mask=place < K)
    tl.store(weights + token * K + place, share * scale, mask=place < K)


def route(x: Tensor, gate: Weight, rule: RouteRule) -> tuple[Tensor, Tensor]:
    n_tokens, width = x.shape
    n_experts, k = gate.shape[0], rule.n_used
    ids = empty(n_tokens, k, dtype=torch.int32)
    weights = empty(n_tokens, k)
    if not n_tokens:
        return ids, weights
    _choose[(n_tokens,)](
        router_logits(x, gate),
        ids,
        weights,
        n_experts,
        rule.scale,
        K=k,
        K_BLOCK=triton.next_power_of_2(k),
        BLOCK=triton.next_power_of_2(n_experts),
        IS_SIGMOID=rule.activation == "sigmoid",
        NORMALISE=rule.normalise,
        num_warps=1,
    )
    return ids, weights


def router_logits(x: Tensor, gate: Weight) -> Tensor:
    """x (T, D) times gate (E, D) transposed, float32 throughout -> (T, E)."""
    n_tokens, width = x.shape
    n_experts = gate.shape[0]
    if n_tokens > 16:
        return x @ floats(gate).T
    out = empty(n_tokens, n_experts)
    tokens = min(triton.next_power_of_2(n_tokens), 4)
    experts = 2
    _logits[(triton.cdiv(n_experts, experts), triton.cdiv(n_tokens, tokens))](
        x,
        floats(gate),
        out,
        x.stride(0),
        n_tokens,
        n_experts,
        width,
        TOKENS=tokens,
        EXPERTS=experts,
        BLOCK=min(triton.next_power_of_2(width), 1024),
        num_warps=4,
    )
    return out
