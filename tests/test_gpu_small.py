"""Norm, rope, routing and rearranging on the GPU against the reference."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gpu_backend import gpu, nmse, to_device, to_host
from gpu_bounds import watched as watched
from octavo.ops import reference
from octavo.ops.weight import RopeTable, RouteRule, Weight


def f32(values: np.ndarray, backend: object) -> Weight:
    data = np.ascontiguousarray(values, np.float32)
    return Weight("w", "f32", data.shape, data.reshape(-1).view(np.uint8), backend)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("shape", [(1, 33), (3, 2048), (5, 257)])
@pytest.mark.parametrize("has_residual", [False, True])
def test_norm(shape: tuple[int, ...], has_residual: bool) -> None:
    x, other, w = numbers(*shape), numbers(*shape, seed=1), numbers(shape[-1], seed=2)
    given = (x, other) if has_residual else (x,)
    expected = reference.norm(x, f32(w, reference), 1e-6, *given[1:])
    found = gpu.norm(to_device(x), f32(w, gpu), 1e-6, *map(to_device, given[1:]))
    pairs = zip(found, expected, strict=True) if has_residual else [(found, expected)]
    for f, e in pairs:
        assert nmse(f, e) < 1e-12


def test_norm_of_heads_in_a_wider_row() -> None:
    x, w = numbers(3, 5, 64), numbers(24, seed=2)
    expected = reference.norm(x[:, :, 7:31], f32(w, reference), 1e-5)
    assert nmse(gpu.norm(to_device(x)[:, :, 7:31], f32(w, gpu), 1e-5), expected) < 1e-12


@pytest.mark.parametrize("pairing", ["neox", "adjacent"])
@pytest.mark.parametrize(("n_pairs", "n_heads"), [(3, 1), (8, 5), (12, 6)])
@pytest.mark.parametrize("is_normed", [False, True])
def test_rope(pairing: str, n_pairs: int, n_heads: int, is_normed: bool) -> None:
    positions = np.array([0, 63, 262_143], np.int32)
    frequencies = (1e7 ** (-np.arange(n_pairs) / n_pairs)).astype(np.float32)
    q, k = numbers(3, n_heads, 32), numbers(3, 2, 24, seed=1)
    weights = numbers(24, seed=2), numbers(24, seed=3)

    def rotated(backend: ModuleType, q: Any, k: Any, positions: Any) -> Any:
        norms = tuple(f32(w, backend) for w in weights) if is_normed else None
        table = RopeTable(frequencies, pairing, 1.25, backend)
        return backend.rope(q[:, :, :24], k, positions, table, norms, 1e-5)

    expected = rotated(reference, q, k, positions)
    found = rotated(gpu, to_device(q), to_device(k), to_device(positions))
    for f, e in zip(found, expected, strict=True):
        assert nmse(f, e) < 1e-12


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("n_tokens", "n_experts", "k"), [(1, 8, 2), (5, 33, 8), (19, 256, 8)])
@pytest.mark.parametrize("normalise", [True, False])
def test_route(activation: str, n_tokens: int, n_experts: int, k: int, normalise: bool) -> None:
    rule = RouteRule(k, activation, normalise, 1.5)
    x, gate = numbers(n_tokens, 70), numbers(n_experts, 70, seed=1) / 8
    ids, weights = reference.route(x, f32(gate, reference), rule)
    found_ids, found = gpu.route(to_device(x), f32(gate, gpu), rule)
    np.testing.assert_array_equal(to_host(found_ids), ids)
    assert nmse(found, weights) < 1e-10


def test_route_prefers_the_lower_id_among_equals() -> None:
    gate = np.zeros((40, 4), np.float32)
    gate[[3, 17, 29], 0] = 1
    gate[[5, 6], 0] = -1
    x = np.array([[2, 0, 0, 0], [-2, 0, 0, 0], [0, 0, 0, 0]], np.float32)
    rule = RouteRule(6)
    ids, _ = reference.route(x, f32(gate, reference), rule)
    found, _ = gpu.route(to_device(x), f32(gate, gpu), rule)
    np.testing.assert_array_equal(to_host(found), ids)


def test_route_with_a_gate_that_is_not_float32() -> None:
    gate = numbers(16, 32, seed=1).astype(np.float16)
    data = gate.reshape(-1).view(np.uint8)
    x, rule = numbers(3, 32), RouteRule(4)
    ids, weights = reference.route(x, Weight("w", "f16", gate.shape, data, reference), rule)
    found_ids, found = gpu.route(to_device(x), Weight("w", "f16", gate.shape, data, gpu), rule)
    np.testing.assert_array_equal(to_host(found_ids), ids)
    assert nmse(found, weights) < 1e-10


def test_rearranging() -> None:
    x, y = numbers(7, 33), numbers(7, 33, seed=1)
    rows = np.array([6, 0, 3], np.int32)
    a, b = to_device(x), to_device(y)
    np.testing.assert_array_equal(to_host(gpu.add(a, b)), x + y)
    np.testing.assert_array_equal(to_host(gpu.concat(a, b)), reference.concat(x, y))
    np.testing.assert_array_equal(to_host(gpu.take(a, to_device(rows))), x[rows])
    assert nmse(gpu.softcap(a, 0.7), reference.softcap(x, 0.7)) < 1e-12
