"""Kernels of the GPU that read weights, against their meaning in NumPy and the reference."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_backend import gpu, nmse, to_device, to_host, torch
from gpu_bounds import watched as watched
from octavo import quants
from octavo.ops import reference
from octavo.ops.gpu import quants as gpu_quants
from octavo.ops.gpu.embed import embed
from octavo.ops.gpu.linear import _splits, linear
from octavo.ops.gpu.rows import many_tile
from octavo.ops.weight import Weight

# rows, blocks of 256 columns, tokens
SHAPES = [(1, 1, 1), (7, 3, 2), (5, 2, 4), (35, 1, 20)]
FLOAT32_NMSE = 1e-10
HALF_NMSE = 1e-6


def make_weight(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weight:
    n_blocks = int(np.prod(shape)) // quants.get(name).block_elements
    data = quants.random_blocks(name, n_blocks, rng, 0.5)
    return Weight(name, name, shape, data.reshape(-1), gpu)


def columns_of(name: str, n_blocks: int) -> int:
    """An odd number of columns that blocks of the format fill."""
    return n_blocks * 256 - {256: 0, 64: 64, 32: 96, 1: 59}[quants.get(name).block_elements]


@pytest.mark.parametrize("name", gpu_quants.names())
def test_unpacked_rows_are_exact(name: str, rng: np.random.Generator) -> None:
    for n_blocks in (1, 3):
        table = make_weight(name, (9, columns_of(name, n_blocks)), rng)
        expected = quants.unpack(name, table.data, table.shape)
        ids = np.array([8, 0, 3], np.int32)
        np.testing.assert_array_equal(to_host(embed(table, to_device(ids))), expected[ids])
        np.testing.assert_array_equal(
            to_host(embed(table, to_device(ids), 1.5)), expected[ids] * np.float32(1.5)
        )
        assert embed(table, to_device(ids[:0])).shape == (0, table.shape[1])


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_every_scale_of_eight_bits(name: str, rng: np.random.Generator) -> None:
    table = make_weight(name, (1, 256 * 32), rng)
    n_scales = {"mxfp4": 1, "nvfp4": 4}[name]
    blocks = table.data.reshape(-1, quants.get(name).block_bytes)
    blocks[:, :n_scales] = np.resize(np.arange(256, dtype=np.uint8), (len(blocks), n_scales))
    with np.errstate(over="ignore"):
        expected = quants.unpack(name, table.data, table.shape)
        found = to_host(embed(table, to_device(np.zeros(1, np.int32))))
    np.testing.assert_array_equal(found, expected)


def test_formats_are_those_of_the_cpu() -> None:
    assert gpu_quants.names() == quants.names()


@pytest.mark.parametrize("name", gpu_quants.names())
def test_products(name: str, rng: np.random.Generator) -> None:
    for rows, n_blocks, tokens in SHAPES:
        w = make_weight(name, (rows, columns_of(name, n_blocks)), rng)
        x = rng.standard_normal((tokens, w.shape[1]), np.float32)
        (y,) = linear(to_device(x), (w,))
        limit = FLOAT32_NMSE if tokens <= 4 else HALF_NMSE
        assert nmse(y, reference.linear(x, (w,))[0]) < limit, (rows, n_blocks, tokens)


@pytest.mark.parametrize("tokens", [0, 1, 4, 20])
def test_weights_that_share_x(tokens: int, rng: np.random.Generator) -> None:
    kinds = [("q4_k", 40), ("f32", 3), ("q8_0", 1), ("f32", 9), ("q8_0", 5), ("q8_0", 2)]
    kinds += [("q8_0", 3), ("q8_0", 65)]
    weights = []
    for i, (name, rows) in enumerate(kinds):
        plain = make_weight(name, (rows, 256), rng)
        bias = make_weight("f32", (rows,), rng) if i % 3 else None
        weights.append(Weight(name, name, plain.shape, plain.data, gpu, bias))
    wide = rng.standard_normal((tokens, 300), np.float32)
    x = to_device(wide)[:, 17:273]  # rows that do not lie one after the other
    expected = reference.linear(wide[:, 17:273], tuple(weights))
    for y, e in zip(linear(x, tuple(weights)), expected, strict=True):
        assert y.stride(1) == 1 or y.shape[1] == 1
        if tokens:
            assert nmse(y, e) < (FLOAT32_NMSE if tokens <= 4 else HALF_NMSE)
        else:
            assert y.shape == e.shape


def test_columns_in_parts(rng: np.random.Generator) -> None:
    """Few tokens for the matrix units: the columns are cut, and one part alone adds the bias."""
    plain = make_weight("q8_0", (40, 1120), rng)
    w = Weight("w", "q8_0", plain.shape, plain.data, gpu, make_weight("f32", (40,), rng))
    x = rng.standard_normal((7, 1120), np.float32)
    assert _splits(7, [40], 1120, many_tile(7)) == 4
    (y,) = linear(to_device(x), (w,))
    assert nmse(y, reference.linear(x, (w,))[0]) < HALF_NMSE


def test_huge_activations_stay_finite(rng: np.random.Generator) -> None:
    w = make_weight("q8_0", (3, 64), rng)
    (y,) = linear(to_device(np.full((9, 64), 1e9, np.float32)), (w,))
    assert torch.isfinite(y).all()
