"""Experts and gated units on the GPU against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_backend import gpu, nmse, to_device, to_host, torch
from octavo import quants
from octavo.ops import reference
from octavo.ops.gpu.experts import experts, on_device, sort_pairs, weighted_sum
from octavo.ops.gpu.gated import Matrices
from octavo.ops.gpu.glu import glu
from octavo.ops.weight import ExpertBank, Weight

FLOAT32_NMSE = 1e-10
HALF_NMSE = 1e-5
N_EXPERTS = 5


def make_weight(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weight:
    n_blocks = int(np.prod(shape)) // quants.get(name).block_elements
    data = quants.random_blocks(name, n_blocks, rng, shape[-1] ** -0.5)
    return Weight(name, name, shape, data.reshape(-1), gpu)


def make_bank(
    formats: tuple[str, str, str],
    sizes: tuple[int, int],
    rng: np.random.Generator,
    kind: str = "silu",
    fused: bool = False,
) -> ExpertBank:
    """Experts of sizes (F, D)."""
    f, d = sizes
    gate = make_weight(formats[0], (N_EXPERTS, f * (2 if fused else 1), d), rng)
    up = None if fused else make_weight(formats[1], (N_EXPERTS, f, d), rng)
    return ExpertBank(gate, up, make_weight(formats[2], (N_EXPERTS, d, f), rng), kind, gpu)


def choices(
    tokens: int, n_used: int, rng: np.random.Generator, n_experts: int = N_EXPERTS
) -> tuple[np.ndarray, np.ndarray]:
    ids = np.stack([rng.permutation(n_experts)[:n_used] for _ in range(tokens)])
    return ids.astype(np.int32), rng.random((tokens, n_used), np.float32)


def limit(tokens: int, few: int) -> float:
    return FLOAT32_NMSE if tokens <= few else HALF_NMSE


@pytest.mark.parametrize(
    ("formats", "sizes"),
    [
        (("q4_k", "q4_k", "f32"), (35, 512)),
        (("q4_k", "q8_0", "q4_0"), (32, 256)),
        (("f16", "f16", "q6_k"), (256, 17)),
    ],
)
@pytest.mark.parametrize("tokens", [1, 3, 37])
def test_experts(
    formats: tuple[str, str, str], sizes: tuple[int, int], tokens: int, rng: np.random.Generator
) -> None:
    bank = make_bank(formats, sizes, rng)
    x = rng.standard_normal((tokens, sizes[1]), np.float32)
    ids, weights = choices(tokens, 3, rng)
    found = experts(to_device(x), bank, to_device(ids), to_device(weights))
    assert nmse(found, reference.experts(x, bank, ids, weights)) < limit(tokens, 8)


@pytest.mark.parametrize("tokens", [2, 11])
def test_fused_gate_and_up(tokens: int, rng: np.random.Generator) -> None:
    bank = make_bank(("q8_0", "", "q5_1"), (32, 96), rng, "gelu", fused=True)
    x = rng.standard_normal((tokens, 96), np.float32)
    ids, weights = choices(tokens, 2, rng)
    found = experts(to_device(x), bank, to_device(ids), to_device(weights))
    assert nmse(found, reference.experts(x, bank, ids, weights)) < limit(tokens, 8)


@pytest.mark.parametrize("tokens", [3, 20])
def test_experts_without_a_slot_add_nothing(tokens: int, rng: np.random.Generator) -> None:
    bank = make_bank(("q8_0", "q8_0", "q8_0"), (32, 64), rng)
    x = rng.standard_normal((tokens, 64), np.float32)
    ids, weights = choices(tokens, 3, rng)
    slots = np.array([2, -1, 0, 1, -1], np.int32)
    whole = on_device(bank)
    pool = whole._replace(**{
        name: pool_of(getattr(whole, name), np.flatnonzero(slots >= 0), slots)
        for name in ("gate", "up", "down")
    })  # fmt: skip
    given = [to_device(a) for a in (ids, weights, slots)]
    found = weighted_sum(to_device(x), pool, *given)
    kept = np.where(slots[ids] >= 0, weights, 0).astype(np.float32)
    assert nmse(found, reference.experts(x, bank, ids, kept)) < limit(tokens, 8)


def pool_of(matrices: Matrices, resident: np.ndarray, slots: np.ndarray) -> Matrices:
    """Slots of 64 bytes more than an expert, holding the experts that have one."""
    stride = matrices.stride + 64
    data = torch.full((len(resident) * stride,), 255, dtype=torch.uint8)
    for expert in resident:
        start = int(slots[expert]) * stride
        own = matrices.data[expert * matrices.stride : (expert + 1) * matrices.stride]
        data[start : start + matrices.stride] = own.cpu()
    return Matrices(
        matrices.format, to_device(data.numpy()), stride, matrices.rows, matrices.columns
    )


@pytest.mark.parametrize(("tokens", "n_used", "block"), [(1, 1, 16), (700, 3, 16), (130, 8, 32)])
def test_pairs_are_sorted_by_expert(
    tokens: int, n_used: int, block: int, rng: np.random.Generator
) -> None:
    n_experts = 37
    ids, _ = choices(tokens, n_used, rng, n_experts)
    ids[ids == 7] = 8  # an expert that nobody chose, and one chosen twice by a token
    blocks = sort_pairs(to_device(ids), n_experts, block)
    order, experts_of = to_host(blocks.order), to_host(blocks.experts)
    np.testing.assert_array_equal(order, np.argsort(ids.reshape(-1), kind="stable"))
    starts, ends = to_host(blocks.starts)
    seen = []
    for expert, start, end in zip(experts_of, starts, ends, strict=True):
        if expert >= 0:
            own = order[start : min(start + block, end)]
            assert len(own) > 0
            assert (ids.reshape(-1)[own] == expert).all()
            seen.extend(own)
    np.testing.assert_array_equal(np.sort(seen), np.arange(ids.size))


@pytest.mark.parametrize("tokens", [0, 1, 3, 19])
@pytest.mark.parametrize("has_scale", [False, True])
def test_glu(tokens: int, has_scale: bool, rng: np.random.Generator) -> None:
    gate, up = (make_weight(name, (33, 256), rng) for name in ("q4_k", "q8_0"))
    down = make_weight("f32", (256, 33), rng)
    scale = make_weight("f32", (256,), rng) if has_scale else None
    x = rng.standard_normal((tokens, 256), np.float32)
    expected = reference.glu(x, gate, up, down, "gelu", scale)
    found = glu(to_device(x), gate, up, down, "gelu", scale)
    if tokens:
        assert nmse(found, expected) < limit(tokens, 4)
    else:
        assert found.shape == expected.shape
