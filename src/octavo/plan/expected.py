"""Speeds to expect of a plan, from its bytes and products and the rates of the machine.

A decoded token on the processor takes its bytes at the speed of memory. With a card it takes

    dense / card + max(hit / card, missed / memory) + blocks x hand-over + rest

where `dense` is trunk, head, cache and states, and of the routed experts `hit` are on the card and
`missed` are computed by the processor meanwhile. A piece of a prompt takes the longer of its
products at the card's rate and the experts that are not on the card at the link's rate. The shares
of rates that are really reached are stated in docs/plan.md, with where they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo import models
from octavo.kv.state import LayerSpec
from octavo.plan import memory
from octavo.plan.layout import Case
from octavo.plan.plan import Expected, Plan, Video

if TYPE_CHECKING:
    from octavo.plan.gpus import Gpu
    from octavo.plan.speeds import Speeds

_CARD_SHARE = 0.75  # of the card's memory rate, as matrix-vector kernels reach it
_MEMORY_SHARE = 0.92  # of the processor's, while the card works too
_HAND_OVER_SECONDS = 25e-6  # a block: launches, and the reply of the processor
_REST_SECONDS = 0.4e-3  # a token: sampling, and Python once
_CARD_PRODUCT_SHARE = 0.55  # of the float32 rate, by half-precision tensor cores
_INT8_SHARE = 0.25  # of the processor's int8 peak, for a prompt
# Share of experts on the card -> routed experts found there once warm. Published for this model
# family by others (6.6 % -> 41 %, 33 % -> 81 %); the ends are certain.
_HITS = ((0.0, 0.0), (0.066, 0.41), (0.33, 0.81), (1.0, 1.0))


def expected(case: Case, plan: Plan) -> Expected | None:
    """What to expect; None: decoding depends on the disk, or on a rate that is not known."""
    if not plan.fits:
        return None
    speeds = case.hardware.speeds
    if plan.video is None:
        return _on_processor(case, plan, speeds) if speeds else None
    gpu = case.gpu
    assert gpu is not None
    if not gpu.read_bytes_per_second or (plan.placement == "split" and speeds is None):
        return None
    return _with_card(case, plan, plan.video, gpu, speeds)


def hit_share(pool_share: float) -> float:
    """Routed experts that are found on the card when this share of all is there."""
    for (low, low_hits), (high, high_hits) in zip(_HITS, _HITS[1:], strict=False):
        if pool_share <= high:
            return low_hits + (pool_share - low) / (high - low) * (high_hits - low_hits)
    return 1.0


def operations_per_token(case: Case) -> float:
    """Of a prompt: two for each weight that a token uses, the output head not counted."""
    trunk = _n_weights(case, "trunk")
    experts, n = _n_weights(case, "experts"), case.config.experts
    return 2.0 * (trunk + (experts * n.rule.n_used / n.n_experts if n else 0))


def _on_processor(case: Case, plan: Plan, speeds: Speeds) -> Expected:
    read = speeds.read_bytes_per_second

    def decode(depth: int) -> float:
        cached = memory.cached_bytes_per_token(_trunk(case), plan.cache_format, depth)
        return read / (plan.read_bytes_per_token + cached)

    return Expected(
        decode=decode(0),
        decode_full=decode(plan.context),
        prefill=_INT8_SHARE * speeds.int8_ops_per_second / operations_per_token(case) or None,
        hit_share=None,
        basis=(f"memory {_rate(read)} ({case.hardware.speeds_origin})",),
    )


def _with_card(case: Case, plan: Plan, video: Video, gpu: Gpu, speeds: Speeds | None) -> Expected:
    hits = hit_share(video.pool_share) if video.slot_bytes else 1.0
    kinds = case.kinds
    dense = kinds.get("trunk", 0) + (kinds.get("head") or kinds.get("embedding", 0))
    routed = plan.read_bytes_per_token - dense
    card = _CARD_SHARE * gpu.read_bytes_per_second
    missed_seconds = 0.0
    if hits < 1 and speeds:
        missed_seconds = (1 - hits) * routed / (_MEMORY_SHARE * speeds.read_bytes_per_second)

    def decode(depth: int) -> float:
        cached = memory.cached_bytes_per_token(_trunk(case), plan.cache_format, depth)
        seconds = (dense + cached) / card + max(hits * routed / card, missed_seconds)
        seconds += case.config.n_layers * _HAND_OVER_SECONDS + _REST_SECONDS
        return 1 / seconds

    basis = [f"card {_rate(gpu.read_bytes_per_second)} ({gpu.rates_origin})"]
    if plan.placement == "split" and speeds:
        memory_rate = _rate(speeds.read_bytes_per_second)
        basis.append(f"memory {memory_rate} ({case.hardware.speeds_origin})")
        basis.append(f"link {_rate(gpu.link_bytes_per_second)} ({gpu.rates_origin})")
    return Expected(
        decode=decode(0),
        decode_full=decode(plan.context),
        prefill=_card_prefill(case, plan, video, gpu),
        hit_share=hits if video.slot_bytes else None,
        basis=tuple(basis),
    )


def _card_prefill(case: Case, plan: Plan, video: Video, gpu: Gpu) -> float | None:
    """Tokens a second in pieces of `plan.batch_tokens`: every expert is wanted once a piece."""
    if not gpu.float_ops_per_second or (video.slot_bytes and not gpu.link_bytes_per_second):
        return None
    operations = plan.batch_tokens * operations_per_token(case)
    products_seconds = operations / (_CARD_PRODUCT_SHARE * gpu.float_ops_per_second)
    link_seconds = 0.0
    if video.slot_bytes:
        brought = max(0, case.kinds.get("experts", 0) - video.pool_bytes)
        link_seconds = brought / gpu.link_bytes_per_second
    return plan.batch_tokens / max(products_seconds, link_seconds)


def _n_weights(case: Case, kind: str) -> int:
    n_layers = case.config.n_layers
    return sum(
        tensor.n_elements
        for tensor in case.tensors
        if len(tensor.shape) > 1 and models.kind(tensor.name, n_layers) == kind
    )


def _trunk(case: Case) -> Sequence[LayerSpec]:
    """Without the draft blocks, which are asked apart."""
    return case.config.layers[: case.config.n_layers]


def _rate(bytes_per_second: float) -> str:
    return f"{memory.text(bytes_per_second)}/s"
