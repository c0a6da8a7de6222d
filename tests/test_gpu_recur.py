"""The delta rule on the GPU, token by token and in chunks, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cache_steps import Piece, make_batch, recur_weights, recurrent_layer
from gpu_backend import IS_INTERPRETED, gpu, nmse, to_device, to_host
from gpu_bounds import watched as watched
from octavo.kv.batch import Batch
from octavo.kv.layers import RecurrentLayer
from octavo.kv.state import RecurrentSpec
from octavo.ops import reference
from octavo.ops.gpu.recur import by_chunks, by_tokens, recur

# key heads, value heads, key dim, value dim, kernel, tiled
# In Triton's interpreter widths cost little, heads and tokens much.
SPECS = [
    RecurrentSpec(2, 4, 8, 16, 3, True),
    RecurrentSpec(2, 4, 8, 16, 2, False),
    RecurrentSpec(1, 3, 12, 20, 2, True),
    RecurrentSpec(1, 1, 4, 68, 1, True),
    RecurrentSpec(1, 2, 128, 128, 4, True),
]
FORMS = {"tokens": (by_tokens, 1e-11), "chunks": (by_chunks, 1e-6)}
STEPS: dict[str, list[list[Piece]]] = {
    "tokens": [[(7, 1), (0, 1)], [(0, 1), (5, 0), (3, 3)]],
    "chunks": [[(0, 1), (5, 0), (40, 33)], [(2, 130), (0, 64)]],
}
Inputs = list[np.ndarray]


def projections(spec: RecurrentSpec, n: int, seed: int = 1) -> Inputs:
    """qkv, z, alpha, beta of n tokens, as views of wider arrays."""
    rng = np.random.default_rng(seed)
    heads = spec.n_value_heads
    widths = (spec.n_channels, heads * spec.value_dim, heads, heads)
    wide = rng.standard_normal((n, sum(widths)), np.float32)
    return np.split(wide, np.cumsum(widths)[:-1], axis=1)


def on_device(inputs: Inputs) -> list[Any]:
    wide = to_device(np.concatenate(inputs, axis=1))
    return list(wide.split([x.shape[1] for x in inputs], dim=1))


def device_batch(batch: Batch) -> Batch:
    return Batch(*(to_device(x) for x in vars(batch).values()))


def twins(spec: RecurrentSpec, n_slots: int) -> tuple[RecurrentLayer, RecurrentLayer]:
    plain = recurrent_layer(spec, n_slots, reference)
    fast = replace(plain, conv=to_device(plain.conv), state=to_device(plain.state), backend=gpu)
    return plain, fast


def compare(
    spec: RecurrentSpec,
    batch: Batch,
    inputs: Inputs,
    form: Callable[..., None],
    limit: float,
    n_slots: int = 8,
) -> None:
    plain, fast = twins(spec, n_slots)
    weights = recur_weights(spec, reference)
    expected = reference.recur(*inputs, weights, plain, batch)
    found = to_device(np.full_like(expected, np.nan))
    form(*on_device(inputs), weights, fast, device_batch(batch), found)
    assert nmse(found, expected) < limit
    np.testing.assert_array_equal(to_host(fast.conv), plain.conv)
    state = to_host(fast.state)
    assert nmse(state, plain.state) < limit
    written = set(batch.state_slots[batch.state_slots >= 0].tolist())
    untouched = [slot for slot in range(n_slots) if slot not in written]
    np.testing.assert_array_equal(state[untouched], plain.state[untouched])


def check(
    name: str,
    spec: RecurrentSpec,
    pieces: Sequence[Piece],
    slots: Sequence[int] | None = None,
    state_slots: Sequence[int] | None = None,
) -> None:
    batch = make_batch(pieces, slots=slots, state_slots=state_slots)
    compare(spec, batch, projections(spec, batch.n_tokens), *FORMS[name])


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_same_as_reference(name: str, spec: RecurrentSpec) -> None:
    for pieces in STEPS[name]:
        check(name, spec, pieces)


@pytest.mark.parametrize("name", FORMS)
def test_states_are_stored_where_asked(name: str) -> None:
    spec = SPECS[2]
    check(name, spec, [(9, 4)], slots=[2], state_slots=[3, 4, 5, 6])  # as verification asks
    check(name, spec, [(9, 4)], slots=[3], state_slots=[3, 4, 5, 6])  # over the one that is read
    check(name, spec, [(9, 4)], slots=[6], state_slots=[3, 4, 5, 6])
    check(name, spec, [(9, 3)], slots=[5], state_slots=[-1, 5, -1])
    check(name, spec, [(9, 1)], slots=[5], state_slots=[-1])


def after_tokens(pieces: Sequence[Piece], state_slots: Sequence[int]) -> list[np.ndarray]:
    """Outputs, windows and states of the device; four programs a sequence."""
    spec = RecurrentSpec(1, 2, 8, 40, 2, True)
    batch = make_batch(pieces, state_slots=state_slots)
    inputs = projections(spec, 3)
    layer = twins(spec, 4)[1]
    found = to_device(np.full_like(inputs[1], np.nan)[: batch.n_tokens])
    inputs = [x[: batch.n_tokens] for x in inputs]
    by_tokens(*on_device(inputs), recur_weights(spec, reference), layer, device_batch(batch), found)
    return [to_host(x) for x in (found, layer.conv, layer.state)]


def test_company_and_order_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    together = after_tokens([(9, 2), (0, 1)], [2, 0, 1])
    alone = after_tokens([(9, 2)], [2, 0])
    for found, wanted, own in zip(together, alone, ([0, 1], [0, 2], [0, 2]), strict=True):
        np.testing.assert_array_equal(found[own], wanted[own])
    if not IS_INTERPRETED:
        return  # a device orders programs itself
    from triton.runtime.interpreter import InterpreterBuilder

    place = InterpreterBuilder.set_grid_idx

    def turned(builder: Any, x: int, y: int, z: int) -> None:
        n_heads, n_groups, _ = builder.grid_dim
        place(builder, (x + 1) % n_heads, n_groups - 1 - y, z)

    monkeypatch.setattr(InterpreterBuilder, "set_grid_idx", turned)
    for found, wanted in zip(after_tokens([(9, 2), (0, 1)], [2, 0, 1]), together, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("n_chunks", [1, 2, 16])
def test_states_within_chunks(n_chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(by_chunks.__globals__, "RUN_CHUNKS", n_chunks)
    wanted = [-1] * 100
    wanted[0], wanted[20], wanted[63], wanted[96] = 7, 2, 6, 3
    check("chunks", SPECS[2], [(0, 20), (6, 80)], slots=[0, 1], state_slots=wanted)
    check("chunks", SPECS[3], [(2, 130), (0, 70)])


def test_pieces_are_the_whole() -> None:
    n, spec = 100, SPECS[2]
    inputs = projections(spec, n)
    weights = recur_weights(spec, reference)
    plain, layer = twins(spec, 2)
    expected = reference.recur(*inputs, weights, plain, make_batch([(0, n)]))
    done, out = 0, []
    for size in (1, 2, 64, 1, 1, 31):
        part = on_device([x[done : done + size] for x in inputs])
        batch = device_batch(make_batch([(done, size)]))
        out.append(to_host(recur(*part, weights, layer, batch)))
        done += size
    assert nmse(np.concatenate(out), expected) < 1e-6
    np.testing.assert_array_equal(to_host(layer.conv), plain.conv)
    assert nmse(to_host(layer.state), plain.state) < 1e-6


@pytest.mark.parametrize(("name", "n"), [("tokens", 8), ("chunks", 70)])
def test_strong_and_absent_decay(name: str, n: int) -> None:
    spec = SPECS[2]
    inputs = [np.array(x) for x in projections(spec, n)]
    inputs[2][::7] = 200  # forgets everything
    inputs[2][1::7] = -200  # forgets nothing
    inputs[3][::5] = 50
    inputs[3][2::5] = -50
    compare(spec, make_batch([(3, n)]), inputs, *FORMS[name])


@pytest.mark.parametrize(("name", "n"), [("tokens", 8), ("chunks", 130)])
def test_keys_that_are_all_alike(name: str, n: int) -> None:
    """Each is written in full and nothing is forgotten."""
    spec = RecurrentSpec(1, 1, 128, 128, 4, True)
    inputs = [np.array(x) for x in projections(spec, n)]
    inputs[0][:, : 2 * spec.key_dim] = inputs[0][:1, : 2 * spec.key_dim]
    inputs[2][:] = -200
    inputs[3][:] = 50
    compare(spec, make_batch([(3, n)]), inputs, *FORMS[name])
