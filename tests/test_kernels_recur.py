"""The delta-rule kernels of every instruction-set level against the plain ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cache_steps import Piece, make_batch, recur_weights, recurrent_layer
from octavo import _native
from octavo.kv.batch import Batch
from octavo.kv.layers import RecurrentLayer
from octavo.kv.state import RecurrentSpec
from octavo.ops import cpu, reference

# key heads, value heads, key dim, value dim, kernel, tiled
SPECS = [
    RecurrentSpec(2, 4, 8, 16, 4, True),
    RecurrentSpec(2, 4, 8, 16, 4, False),
    RecurrentSpec(1, 3, 12, 20, 2, True),
    RecurrentSpec(3, 6, 36, 4, 5, False),
    RecurrentSpec(2, 2, 128, 128, 4, True),
    RecurrentSpec(1, 1, 4, 68, 1, True),
]
STEPS: list[list[Piece]] = [
    [],
    [(0, 0)],
    [(0, 1)],
    [(7, 1), (0, 1), (1, 1)],
    [(0, 2), (5, 0), (3, 3), (1, 5)],
    [(0, 15), (9, 16), (0, 17), (40, 33)],
    [(2, 130)],
]


@pytest.fixture(params=_native.levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction-set level of this processor in turn."""
    cpu.pool()  # starts with the level of the environment; that is set aside here
    before = cpu.level()
    cpu.set_level(request.param)
    yield request.param
    cpu.set_level(before)


def projections(spec: RecurrentSpec, n: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    """qkv, z, alpha, beta of n tokens, as views of wider arrays."""
    rng = np.random.default_rng(seed)
    heads = spec.n_value_heads
    widths = (spec.n_channels, heads * spec.value_dim, heads, heads)
    wide = rng.standard_normal((n, sum(widths)), np.float32)
    return tuple(np.split(wide, np.cumsum(widths)[:-1], axis=1))


def twins(spec: RecurrentSpec, n_slots: int) -> tuple[RecurrentLayer, RecurrentLayer]:
    plain = recurrent_layer(spec, n_slots, reference)
    fast = replace(plain, conv=plain.conv.copy(), state=plain.state.copy(), backend=cpu)
    return plain, fast


def assert_close(actual: np.ndarray, expected: np.ndarray, limit: float = 1e-5) -> None:
    """The difference is small against the size of what is expected."""
    assert actual.shape == expected.shape
    error = np.linalg.norm((actual - expected).astype(np.float64))
    assert error <= limit * np.linalg.norm(expected.astype(np.float64)) + 1e-30


def check(
    spec: RecurrentSpec,
    pieces: Sequence[Piece],
    slots: Sequence[int] | None = None,
    state_slots: Sequence[int] | None = None,
    n_slots: int = 8,
) -> None:
    plain, fast = twins(spec, n_slots)
    batch = make_batch(pieces, slots=slots, state_slots=state_slots)
    inputs = projections(spec, batch.n_tokens)
    weights = recur_weights(spec, reference)
    expected = reference.recur(*inputs, weights, plain, batch)
    actual = cpu.recur(*inputs, weights, fast, batch)
    assert_close(actual, expected)
    np.testing.assert_array_equal(fast.conv, plain.conv)
    assert_close(fast.state, plain.state)
    written = set(batch.state_slots[batch.state_slots >= 0].tolist())
    untouched = [slot for slot in range(n_slots) if slot not in written]
    np.testing.assert_array_equal(fast.state[untouched], plain.state[untouched])


@pytest.mark.parametrize("pieces", STEPS, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_same_as_reference(spec: RecurrentSpec, pieces: list[Piece], level: str) -> None:
    check(spec, pieces)


@pytest.mark.parametrize("spec", [SPECS[0], SPECS[2], SPECS[4]], ids=str)
def test_states_are_stored_where_asked(spec: RecurrentSpec, level: str) -> None:
    check(spec, [(9, 5)], slots=[2], state_slots=[3, 4, 5, 6, 7])  # as verification asks
    check(spec, [(9, 5)], slots=[3], state_slots=[3, 4, 5, 6, 7])  # over the one that is read
    check(spec, [(9, 5)], slots=[7], state_slots=[3, 4, 5, 6, 7])
    check(spec, [(9, 3)], slots=[5], state_slots=[-1, 5, -1])
    check(spec, [(9, 1)], slots=[5], state_slots=[-1])
    many = [-1] * 40
    many[0], many[20], many[36] = 1, 2, 3
    check(spec, [(0, 20), (6, 20)], slots=[0, 4], state_slots=many)


@pytest.mark.parametrize("spec", [SPECS[0], SPECS[2], SPECS[4]], ids=str)
def test_pieces_are_the_whole(spec: RecurrentSpec, level: str) -> None:
    n = 150
    inputs = projections(spec, n)
    weights = recur_weights(spec, cpu)
    results, states = [], []
    for sizes in ([n], [1, 2, 64, 1, 33, n], [1] * n):
        layer = recurrent_layer(spec, 2, cpu)
        done, out = 0, []
        for size in sizes:
            size = min(size, n - done)
            part = [x[done : done + size] for x in inputs]
            out.append(cpu.recur(*part, weights, layer, make_batch([(done, size)])).copy())
            done += size
        results.append(np.concatenate(out))
        states.append((layer.conv[0], layer.state[0]))
    for result, (conv, state) in zip(results[1:], states[1:], strict=True):
        assert_close(result, results[0])
        np.testing.assert_array_equal(conv, states[0][0])
        assert_close(state, states[0][1])


def test_company_and_threads_change_nothing(level: str) -> None:
    spec = SPECS[4]
    pieces = [(5, 1), (0, 70), (9, 3)]
    batch = make_batch(pieces)
    inputs = projections(spec, batch.n_tokens)
    weights = recur_weights(spec, cpu)
    before = cpu.pool().n_threads
    results, layers = [], []
    try:
        for n_threads in (1, 3):
            cpu.set_threads(n_threads)
            layers.append(recurrent_layer(spec, 3, cpu))
            results.append(cpu.recur(*inputs, weights, layers[-1], batch).copy())
    finally:
        cpu.set_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(layers[0].state, layers[1].state)
    for s, piece in enumerate(pieces):
        rows = slice(batch.starts[s], batch.starts[s + 1])
        layer = recurrent_layer(spec, 3, cpu)
        alone = make_batch([piece], slots=[s])
        out = cpu.recur(*(x[rows] for x in inputs), weights, layer, alone)
        np.testing.assert_array_equal(out, results[0][rows])
        np.testing.assert_array_equal(layer.state[s], layers[0].state[s])


def test_strong_and_absent_decay(level: str) -> None:
    spec = SPECS[0]
    plain, fast = twins(spec, 2)
    batch = make_batch([(3, 60)])
    qkv, z, alpha, beta = (np.array(x) for x in projections(spec, 60))
    alpha[::7] = 200  # forgets everything
    alpha[1::7] = -200  # forgets nothing
    beta[::5] = 50
    beta[2::5] = -50
    weights = recur_weights(spec, reference)
    expected = reference.recur(qkv, z, alpha, beta, weights, plain, batch)
    assert_close(cpu.recur(qkv, z, alpha, beta, weights, fast, batch), expected)
    assert_close(fast.state, plain.state)


def test_a_recorded_step_follows_its_arrays(level: str) -> None:
    spec = SPECS[1]
    plain, fast = twins(spec, 4)
    inputs = [np.ascontiguousarray(x) for x in projections(spec, 2)]
    weights = recur_weights(spec, reference)
    batch: Batch = make_batch([(0, 1), (4, 1)])
    recording = cpu.capture(lambda: cpu.recur(*inputs, weights, fast, batch))
    reference.recur(*inputs, weights, plain, batch)
    for step, slots in enumerate(([0, 1], [2, 3], [1, 0])):
        for old, new in zip(inputs, projections(spec, 2, seed=step), strict=True):
            old[:] = new
        batch.n_past[:] = [step, 5 + step]
        batch.state_slots[:] = slots
        recording.replay()
        assert_close(recording.result, reference.recur(*inputs, weights, plain, batch))
        assert_close(fast.state, plain.state)
        batch.slots[:] = slots
