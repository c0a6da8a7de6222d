"""RMS norm over the last axis, with the residual addition in the same pass."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu import relay
from octavo.ops.gpu.device import Tensor, empty
from octavo.ops.gpu.graph import may_cut
from octavo.ops.gpu.weights import floats
from octavo.ops.weight import Weight


@triton.jit
def _norm(
    x,
    residual,
    weight,
    total,
    out,
    x_token,
    x_head,
    r_token,
    r_head,
    width,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a row (token, head). `total` and `out` are (T, H, width), contiguous."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    n_heads = tl.num_programs(1)
    i = tl.arange(0, BLOCK)
    inside = i < width
    factor = tl.load(weight + i, mask=inside, other=0.0)
    relay.take_over()
    row = tl.load(x + token * x_token + head * x_head + i, mask=inside, other=0.0)
    place = (token * n_heads + head) * width + i
    if HAS_RESIDUAL:
        row += tl.load(residual + token * r_token + head * r_head + i, mask=inside, other=0.0)
        tl.store(total + place, row, mask=inside)
    mean_square = tl.sum(row * row, axis=0) / width
    scaled = row / tl.sqrt(mean_square + eps)
    tl.store(out + place, scaled * factor, mask=inside)


def norm(
    x: Tensor, w: Weight, eps: float, residual: Tensor | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    if residual is not None:
        may_cut()
    out = empty(*x.shape)
    total = None if residual is None else empty(*x.shape)
    n_heads = x.shape[1] if x.dim() == 3 else 1
    if x.numel():
        width = x.shape[-1]
        block = triton.next_power_of_2(width)
        other = x if residual is None else residual
        _norm[(x.shape[0], n_heads)](
            x,
            other,
            floats(w),
            out if total is None else total,
            out,
            x.stride(0),
            x.stride(1) if x.dim() == 3 else 0,
            other.stride(0),
            other.stride(1) if x.dim() == 3 else 0,
            width,
            eps,
            HAS_RESIDUAL=residual is not None,
            BLOCK=block,
            num_warps=min(max(block // 256, 1), 8),
            **relay.options(),
        )
    return out if total is None else (out, total)
