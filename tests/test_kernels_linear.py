"""Kernels of every block format at every instruction-set level against their meaning in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from octavo import _native, quants
from octavo.ops import cpu
from octavo.ops.weight import Weight

Array = np.ndarray
FLOATS = ["bf16", "f16", "f32"]
INTEGERS = sorted(set(_native.formats()) - set(FLOATS))
# rows, blocks of 32 columns (rounded up to the format's block), tokens; from 9 tokens on panels
SHAPES = [(1, 1, 1), (7, 3, 2), (33, 18, 3), (3, 25, 7), (6, 8, 8), (66, 18, 9), (257, 9, 1)]
# Rounding activations to int8 costs 3e-5, more or less in a few sums.
ROUNDING_NMSE = 1.5e-4


@pytest.fixture(params=_native.levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction-set level of this processor in turn."""
    cpu.pool()  # starts with the level of the environment; that is set aside here
    before = cpu.level()
    cpu.set_level(request.param)
    yield request.param
    cpu.set_level(before)


def make_weight(name: str, rows: int, columns: int, rng: np.random.Generator) -> Weight:
    form = quants.get(name)
    blocks = quants.random_blocks(name, rows * columns // form.block_elements, rng, 0.5)
    return Weight(name, name, (rows, columns), blocks.reshape(-1), cpu)


def vector_weight(values: Array) -> Weight:
    return Weight("bias", "f32", values.shape, values.view(np.uint8).reshape(-1), cpu)


def floats_of(w: Weight) -> Array:
    return quants.unpack(w.format, w.data, w.shape).astype(np.float64)


def columns_of(name: str, n_groups: int) -> int:
    block = quants.get(name).block_elements
    return -(-n_groups * 32 // block) * block


def activations(tokens: int, columns: int, rng: np.random.Generator) -> Array:
    scale = rng.random((tokens, 1), np.float32) * 10
    return rng.standard_normal((tokens, columns), np.float32) * scale


def as_int8(x: Array) -> tuple[Array, Array]:
    """q (T, K) and scale (T, K / 32) as the kernels round x."""
    groups = x.reshape(len(x), -1, 32)
    peak = np.abs(groups).max(axis=2, keepdims=True)
    peak[peak < 1e-30] = 0
    scale = peak / np.float32(127)
    inverse = np.divide(np.float32(127), peak, out=np.zeros_like(peak), where=peak > 0)
    return np.rint(groups * inverse).reshape(x.shape), scale[..., 0]


def integer_product(x: Array, w: Weight) -> tuple[Array, Array]:
    """What the kernels compute, without their rounding: (T, N), and the sum of its terms' sizes."""
    form = quants.get_block(w.format)
    parts = form.integer_form(w.data.reshape(-1, form.block_bytes))
    rows, columns = w.shape
    q, scale = as_int8(x)
    rounded = (q.reshape(len(x), -1, 32) * scale[..., None].astype(np.float64)).reshape(x.shape)
    weights = parts.q.reshape(parts.scale.shape + (-1,)) * parts.scale[..., None].astype(np.float64)
    sizes = np.abs(weights)
    if parts.offset is not None:
        weights = weights + parts.offset[..., None]
        sizes = sizes + np.abs(parts.offset[..., None])
    shape = (columns, rows)
    weights, sizes = weights.reshape(shape[::-1]).T, sizes.reshape(shape[::-1]).T
    return rounded @ weights, np.abs(rounded) @ sizes


def nmse(result: Array, expected: Array) -> float:
    return float(np.sum((result - expected) ** 2) / max(np.sum(expected**2), 1e-30))


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_formats(name: str, level: str, rng: np.random.Generator) -> None:
    for rows, n_groups, tokens in SHAPES:
        w = make_weight(name, rows, columns_of(name, n_groups), rng)
        x = activations(tokens, w.shape[1], rng)
        (y,) = cpu.linear(x, (w,))
        exact, sizes = integer_product(x, w)
        assert np.all(np.abs(y - exact) <= 1e-6 * sizes), (rows, n_groups, tokens)
        if y.size > 50:
            assert nmse(y, x @ floats_of(w).T) < ROUNDING_NMSE, (rows, n_groups, tokens)


@pytest.mark.parametrize("name", FLOATS)
def test_float_formats(name: str, level: str, rng: np.random.Generator) -> None:
    for rows, columns, tokens in [(1, 1, 1), (7, 33, 2), (6, 257, 9), (33, 96, 3), (2, 31, 8)]:
        w = make_weight(name, rows, columns, rng)
        x = activations(tokens, columns, rng)
        (y,) = cpu.linear(x, (w,))
        weights = floats_of(w).T
        assert np.all(np.abs(y - x @ weights) <= 1e-6 * (np.abs(x) @ np.abs(weights)))


@pytest.mark.parametrize("name", sorted(_native.formats()))
def test_unpack_is_exact(name: str, level: str, rng: np.random.Generator) -> None:
    table = make_weight(name, 9, columns_of(name, 9), rng)
    ids = np.array([8, 0, 3], np.int32)
    np.testing.assert_array_equal(cpu.embed(table, ids), floats_of(table)[ids].astype(np.float32))


@pytest.mark.parametrize("name", ["q4_k", "q6_k", "q8_0", "f16"])
def test_a_result_depends_on_its_row_and_token_only(
    name: str, level: str, rng: np.random.Generator
) -> None:
    w = make_weight(name, 37, columns_of(name, 18), rng)
    row_bytes = len(w.data) // 37
    part = Weight("part", name, (30, w.shape[1]), w.data[5 * row_bytes : 35 * row_bytes], cpu)
    x = activations(8, w.shape[1], rng)
    for n in range(1, 9):
        (y,) = cpu.linear(x[:n], (w,))
        np.testing.assert_array_equal(cpu.linear(x[:n], (part,))[0], y[:, 5:35])
        order = np.arange(n)[::-1]
        np.testing.assert_array_equal(cpu.linear(x[order], (w,))[0], y[order])


@pytest.mark.parametrize("tokens", [0, 1, 5, 20])
def test_weights_that_share_x(tokens: int, level: str, rng: np.random.Generator) -> None:
    weights = [make_weight(n, r, 256, rng) for n, r in [("q4_k", 40), ("f32", 3), ("q8_0", 1)]]
    biases = [vector_weight(rng.standard_normal(w.shape[0], np.float32)) for w in weights]
    biased = tuple(
        Weight(w.name, w.format, w.shape, w.data, cpu, b)
        for w, b in zip(weights, biases, strict=True)
    )
    x = activations(tokens, 300, rng)[:, 17:273]  # rows that do not lie one after the other
    for y, w in zip(cpu.linear(x, biased), biased, strict=True):
        assert w.bias is not None
        (plain,) = cpu.linear(np.ascontiguousarray(x), (make_plain(w),))
        np.testing.assert_allclose(y, plain + w.bias.floats(), rtol=1e-5, atol=1e-4)


def make_plain(w: Weight) -> Weight:
    return Weight(w.name, w.format, w.shape, w.data, cpu)


def test_unusual_activations(level: str, rng: np.random.Generator) -> None:
    w = make_weight("q4_k", 5, 512, rng)
    x = np.zeros((4, 512), np.float32)
    x[1, 3] = 1e-38
    x[2, 40] = -1e33
    x[3] = 5
    (y,) = cpu.linear(x, (w,))
    exact, sizes = integer_product(x, w)
    assert not y[:2].any()
    assert np.all(np.abs(y - exact) <= 1e-6 * sizes)


def test_wrong_shapes_are_refused(rng: np.random.Generator) -> None:
    w = make_weight("q4_k", 5, 512, rng)
    with pytest.raises(ValueError, match="columns"):
        cpu.linear(activations(2, 256, rng), (w,))


@pytest.mark.parametrize("n_tokens", [1, 5, 8, 12])
def test_recorded_operations_use_memory_again(level: str, n_tokens: int) -> None:
    rng = np.random.default_rng(n_tokens)
    weights = [make_weight("q4_0", 96, 96, rng) for _ in range(6)]
    x = rng.standard_normal((n_tokens, 96)).astype(np.float32)
    places = set()

    def step() -> tuple[Array, Array]:
        """The first result is held to the end, the others until the next one is there."""
        (first,) = cpu.linear(x, (weights[0],))
        last = first
        for w in weights[1:]:
            (last,) = cpu.linear(last, (w,))
            places.add(last.ctypes.data)
        return first, last

    recording = cpu.capture(step)
    assert len(places) == 2
    x[:] = rng.standard_normal(x.shape)
    recording.replay()
    for replayed, expected in zip(recording.result, step(), strict=True):
        np.testing.assert_array_equal(replayed, expected)
