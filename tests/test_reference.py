"""The reference operations against other ways to compute the same things."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf

import numpy as np
import pytest

from octavo import ops, quants
from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec, RecurrentSpec
from octavo.ops import reference
from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight

SIZES = (1, 7, 33, 257)


def weight(values: np.ndarray, format: str = "f32", bias: Weight | None = None) -> Weight:
    data = quants.pack(format, values.astype(np.float32)).reshape(-1)
    return Weight("w", format, values.shape, data.view(np.uint8), reference, bias)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_embed_takes_rows(rng: np.random.Generator) -> None:
    table = weight(normal(rng, 33, 64), "q8_0")
    ids = np.array([32, 0, 0, 7], np.int32)
    rows = np.stack([quants.unpack("q8_0", table.data, table.shape)[i] for i in ids])
    close(ops.embed(table, ids, 8.0), 8 * rows)
    assert ops.embed(table, ids[:0]).shape == (0, 64)


@pytest.mark.parametrize("n", SIZES)
def test_norm(rng: np.random.Generator, n: int) -> None:
    x, residual, w = normal(rng, 3, n), normal(rng, 3, n), normal(rng, n)
    total = x.astype(np.float64) + residual
    expected = [w * row / np.sqrt((row @ row) / n + 1e-6) for row in total]
    normed, added = ops.norm(x, weight(w), 1e-6, residual)
    close(normed, np.array(expected))
    close(added, total)
    close(ops.norm(x + residual, weight(w), 1e-6), np.array(expected))


@pytest.mark.parametrize("n", SIZES)
def test_linear_adds_the_bias(rng: np.random.Generator, n: int) -> None:
    x, values, bias = normal(rng, n, 32), normal(rng, 5, 32), normal(rng, 5)
    plain, biased = ops.linear(x, weight(values), weight(values, bias=weight(bias)))
    expected = np.array([[sum(a * b) for b in values.astype(np.float64)] for a in x])
    close(plain, expected, 1e-4)
    close(biased, expected + bias, 1e-4)
    assert np.array_equal(ops.linear(x, weight(values)), plain)


@pytest.mark.parametrize("pairing", ["neox", "adjacent"])
def test_rope_turns_complex_numbers(rng: np.random.Generator, pairing: str) -> None:
    n_pairs, width = 5, 16
    frequencies = rng.uniform(0, 2, n_pairs).astype(np.float32)
    x, positions = normal(rng, 4, 3, width), np.array([0, 1, 40, 1000], np.int32)
    first = np.arange(n_pairs) if pairing == "neox" else 2 * np.arange(n_pairs)
    second = first + (n_pairs if pairing == "neox" else 1)
    turned = x[..., first] + 1j * x[..., second]
    turned = turned * 1.5 * np.exp(1j * positions[:, None, None] * frequencies.astype(float))
    table = RopeTable(frequencies, pairing, 1.5, reference)
    found, keys = ops.rope(x, x[:, :2], positions, table)
    close(keys, found[:, :2])
    close(found[..., first], turned.real)
    close(found[..., second], turned.imag)
    assert np.array_equal(found[..., 2 * n_pairs :], x[..., 2 * n_pairs :])


def test_rope_normalises_heads_before(rng: np.random.Generator) -> None:
    q, k, positions = normal(rng, 3, 4, 8), normal(rng, 3, 2, 8), np.arange(3, dtype=np.int32)
    table = RopeTable(np.ones(3, np.float32), "neox", 1.0, reference)
    norms = weight(normal(rng, 8)), weight(normal(rng, 8))
    found = ops.rope(q, k, positions, table, norms, 1e-5)
    normed = (ops.norm(x, w, 1e-5) for x, w in zip((q, k), norms, strict=True))
    for got, expected in zip(found, ops.rope(*normed, positions, table), strict=True):
        assert np.array_equal(got, expected)


def make_batch(lengths: list[int], past: list[int], n_pages: int) -> Batch:
    """Sequence s owns pages s * n_pages ... and slot s, and keeps its last state."""
    n = sum(lengths)
    batch = Batch.empty(n, len(lengths), n_pages, 0)
    batch.starts[1:] = np.cumsum(lengths)
    batch.n_past[:] = past
    batch.slots[:] = np.arange(len(lengths))
    batch.pages[:] = np.arange(len(lengths) * n_pages).reshape(-1, n_pages)
    for s, end in enumerate(batch.starts[1:]):
        own = slice(batch.starts[s], end)
        batch.positions[own] = past[s] + np.arange(lengths[s])
        if lengths[s]:
            batch.state_slots[end - 1] = s
    return batch


def attention_layer(spec: AttentionSpec, n_pages: int) -> AttentionLayer:
    data = np.full((n_pages, formats.page_bytes("f32", spec)), 0xFF, np.uint8)
    return AttentionLayer(spec, "f32", data, reference)


def attend_plainly(q: np.ndarray, k: np.ndarray, v: np.ndarray, spec: AttentionSpec) -> np.ndarray:
    """One query at a time, over the keys that it sees."""
    out = np.empty((*q.shape[:2], v.shape[2]))
    for t in range(len(q)):
        first = max(0, t + 1 - spec.window) if spec.window else 0
        for h in range(q.shape[1]):
            kv = h * spec.n_kv_heads // q.shape[1]
            scores = [spec.scale * float(q[t, h] @ key) for key in k[first : t + 1, kv]]
            share = np.exp(np.array(scores) - max(scores))
            out[t, h] = share @ v[first : t + 1, kv] / share.sum()
    return out.reshape(len(q), -1)


@pytest.mark.parametrize("window", [0, 1, 20])
@pytest.mark.parametrize("heads", [(1, 1), (6, 2)])
def test_attend_in_pieces(rng: np.random.Generator, heads: tuple[int, int], window: int) -> None:
    n, (n_heads, n_kv_heads) = 2 * PAGE_TOKENS + 3, heads
    spec = AttentionSpec(n_kv_heads, 24, 16, scale=0.3, window=window)
    q, k = normal(rng, n, n_heads, 24), normal(rng, n, n_kv_heads, 24)
    v = normal(rng, n, n_kv_heads, 16)
    expected = attend_plainly(q, k, v, spec)
    layer, past = attention_layer(spec, 3), 0
    for length in (1, 7, 62, 33, n - 103):
        part = slice(past, past + length)
        batch = make_batch([length], [past], 3)
        close(ops.attend(q[part], k[part], v[part], layer, batch), expected[part], 1e-4)
        past += length


def test_attend_keeps_sequences_apart_and_gates(rng: np.random.Generator) -> None:
    spec = AttentionSpec(2, 16, 16, scale=0.25)
    lengths = [5, 1, 70]
    n = sum(lengths)
    q, k, v, gate = (normal(rng, n, heads, 16) for heads in (4, 2, 2, 4))
    batch = make_batch(lengths, [0, 0, 0], 2)
    found = ops.attend(q, k, v, attention_layer(spec, 6), batch, gate)
    for s in range(3):
        own = slice(batch.starts[s], batch.starts[s + 1])
        alone = attend_plainly(q[own], k[own], v[own], spec)
        close(found[own], alone * sigmoid(gate[own]).reshape(len(alone), -1), 1e-4)


@dataclass
class Delta:
    """Inputs of a gated delta-rule layer."""

    qkv: np.ndarray
    z: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    w: RecurWeights
    spec: RecurrentSpec

    def run(self, own: slice, layer: RecurrentLayer, batch: Batch) -> np.ndarray:
        return ops.recur(
            self.qkv[own], self.z[own], self.alpha[own], self.beta[own], self.w, layer, batch
        )


def delta(rng: np.random.Generator, n: int, tiled: bool) -> Delta:
    spec = RecurrentSpec(2, 6, 8, 12, conv_kernel=4, tiled=tiled)
    w = RecurWeights(
        conv=weight(normal(rng, spec.n_channels, 4)),
        a=weight(-np.exp(normal(rng, 6))),
        dt=weight(normal(rng, 6)),
        norm=weight(normal(rng, 12)),
        eps=1e-6,
    )
    return Delta(
        normal(rng, n, spec.n_channels),
        normal(rng, n, 72),
        normal(rng, n, 6),
        normal(rng, n, 6),
        w,
        spec,
    )


def recurrent_layer(spec: RecurrentSpec, n_slots: int) -> RecurrentLayer:
    """Slots full of numbers that no result may depend on."""
    conv = np.full((n_slots, *spec.conv_shape), 1e3, np.float32)
    return RecurrentLayer(
        spec, conv, np.full((n_slots, *spec.state_shape), 1e3, np.float32), reference
    )


def delta_in_one_chunk(d: Delta) -> np.ndarray:
    """The whole text as one chunk: matrix products and one triangular solve, in float64."""
    n, spec = len(d.qkv), d.spec
    padded = np.concatenate([np.zeros((3, spec.n_channels)), d.qkv])
    mixed = sum(padded[j : j + n] * d.w.conv.floats()[:, j] for j in range(4))
    mixed = mixed * sigmoid(mixed)
    q, k, v = np.split(mixed, [16, 32], axis=1)
    decay = np.cumsum(d.w.a.floats() * np.log1p(np.exp(d.alpha + d.w.dt.floats())), axis=0)
    rate, out = sigmoid(d.beta), np.empty((n, 6, 12))
    for head in range(6):
        owner = head % 2 if spec.tiled else head // 3
        keys, queries = (x[:, 8 * owner : 8 * owner + 8] for x in (k, q))
        keys = keys / np.sqrt((keys**2).sum(axis=1, keepdims=True) + 1e-6)
        queries = queries / np.sqrt((queries**2).sum(axis=1, keepdims=True) + 1e-6) / np.sqrt(8)
        between = np.exp(np.tril(decay[:, None, head] - decay[None, :, head]))
        inner = np.tril(between * (rate[:, head, None] * (keys @ keys.T)), -1)
        values = rate[:, head, None] * v[:, 12 * head : 12 * head + 12]
        written = np.linalg.solve(np.eye(n) + inner, values)
        out[:, head] = np.tril(between * (queries @ keys.T)) @ written
    out = out / np.sqrt((out**2).mean(axis=2, keepdims=True) + 1e-6) * d.w.norm.floats()
    return out.reshape(n, -1) * d.z * sigmoid(d.z)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("n", [1, 2, 33, 100])
def test_recur_is_the_chunked_form(rng: np.random.Generator, n: int, tiled: bool) -> None:
    d = delta(rng, n, tiled)
    found = d.run(slice(0, n), recurrent_layer(d.spec, 1), make_batch([n], [0], 1))
    close(found, delta_in_one_chunk(d), 1e-3)


def test_recur_in_pieces_and_from_any_kept_state(rng: np.random.Generator) -> None:
    d = delta(rng, 40, tiled=True)
    layer = recurrent_layer(d.spec, 3)
    batch = make_batch([40], [0], 1)
    batch.state_slots[[9, 10, 39]] = 1, 2, 0
    whole = d.run(slice(0, 40), layer, batch)
    for kept_after, slot in ((10, 1), (11, 2)):
        rest = make_batch([40 - kept_after], [kept_after], 1)
        rest.slots[:] = slot
        rest.state_slots[:] = -1
        close(d.run(slice(kept_after, 40), layer, rest), whole[kept_after:], 1e-4)
    past = 0
    for length in (1, 2, 37):
        part = slice(past, past + length)
        pieces = d.run(part, layer, make_batch([length], [past], 1))
        close(pieces, whole[part], 1e-4)
        past += length


def test_recur_keeps_sequences_apart(rng: np.random.Generator) -> None:
    d = delta(rng, 12, tiled=False)
    batch = make_batch([5, 7], [0, 0], 1)
    together = d.run(slice(0, 12), recurrent_layer(d.spec, 2), batch)
    for own in (slice(0, 5), slice(5, 12)):
        n = own.stop - own.start
        alone = d.run(own, recurrent_layer(d.spec, 1), make_batch([n], [0], 1))
        close(together[own], alone, 1e-5)


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("normalise", [False, True])
def test_route(rng: np.random.Generator, activation: str, normalise: bool) -> None:
    x, gate = normal(rng, 7, 16), normal(rng, 9, 16)
    rule = RouteRule(3, activation, normalise, scale=2.5)
    ids, weights = ops.route(x, weight(gate), rule)
    for t in range(7):
        scores = (gate @ x[t]).astype(np.float64)
        is_softmax = activation == "softmax"
        scores = np.exp(scores) / np.exp(scores).sum() if is_softmax else sigmoid(scores)
        best = sorted(range(9), key=lambda e: -scores[e])[:3]
        assert ids[t].tolist() == best
        total = scores[best].sum() if normalise else 1
        close(weights[t], 2.5 * scores[best] / total)


def test_route_prefers_the_lower_id_among_equals() -> None:
    x = np.ones((1, 4), np.float32)
    gate = np.zeros((40, 4), np.float32)
    gate[33] = 1
    ids, weights = ops.route(x, weight(gate), RouteRule(4))
    assert ids.tolist() == [[33, 0, 1, 2]]
    assert ids.dtype == np.int32
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["silu", "gelu"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("n", [1, 33])
def test_experts_are_glus(rng: np.random.Generator, kind: str, fused: bool, n: int) -> None:
    x, gate, up = normal(rng, n, 32), normal(rng, 5, 64, 32), normal(rng, 5, 64, 32)
    down = normal(rng, 5, 32, 64)
    ids = np.stack([rng.permutation(5)[:2] for _ in range(n)]).astype(np.int32)
    shares = rng.random((n, 2), np.float32)
    bank = ExpertBank(
        weight(np.concatenate([gate, up], axis=1) if fused else gate, "q8_0"),
        None if fused else weight(up, "q8_0"),
        weight(down, "q8_0"),
        kind,
        reference,
    )
    expected = np.zeros((n, 32))
    for t in range(n):
        for e, share in zip(ids[t], shares[t], strict=True):
            parts = (weight(part[e], "q8_0") for part in (gate, up, down))
            expected[t] += share * ops.glu(x[t : t + 1], *parts, kind)[0]
    close(ops.experts(x, bank, ids, shares), expected, 1e-3)


def test_glu_is_scaled_by_a_gate_vector(rng: np.random.Generator) -> None:
    x, gate, up = normal(rng, 7, 32), normal(rng, 9, 32), normal(rng, 9, 32)
    down, vector = normal(rng, 32, 9), normal(rng, 32)
    opened = (x @ gate.T) * sigmoid(x @ gate.T)
    expected = (opened * (x @ up.T)) @ down.T * sigmoid(x @ vector)[:, None]
    found = ops.glu(x, weight(gate), weight(up), weight(down), "silu", weight(vector, "f32"))
    close(found, expected, 1e-3)


def test_gelu_is_close_to_the_exact_one(rng: np.random.Generator) -> None:
    x = np.linspace(-6, 6, 101, dtype=np.float32)[:, None]
    first, second = weight(np.array([[1.0, 0]])), weight(np.array([[0.0, 1]]))
    both = np.concatenate([x, np.ones_like(x)], axis=1)
    found = ops.glu(both, first, second, weight(np.ones((1, 1))), "gelu")
    exact = np.array([[0.5 * v * (1 + erf(v / 2**0.5))] for v in x[:, 0]])
    np.testing.assert_allclose(found, exact, atol=6e-4)


def test_small_operations(rng: np.random.Generator) -> None:
    x, y = normal(rng, 7, 5), normal(rng, 7, 5)
    rows = np.array([6, 0, 0], np.int32)
    close(ops.add(x, y, reference), y + x)
    assert np.array_equal(ops.concat(x, y, reference)[:, 5:], y)
    assert np.array_equal(ops.take(x, rows, reference), x[[6, 0, 0]])
    capped = ops.softcap(50 * x, 30.0, reference)
    close(capped, 30 * (1 - 2 / (np.exp(2 * 50 * x.astype(np.float64) / 30) + 1)))


def test_a_captured_step_is_computed_again_in_place(rng: np.random.Generator) -> None:
    x, w = normal(rng, 3, 8), weight(normal(rng, 8))
    captured = ops.capture(lambda: ops.norm(x, w, 1e-6, x), reference)
    normed, added = captured.result
    before = normed.copy()
    x[...] = normal(rng, 3, 8)
    captured.replay()
    assert captured.result[0] is normed
    assert not np.array_equal(normed, before)
    assert np.array_equal(added, x + x)


def test_no_operation_changes_its_inputs(rng: np.random.Generator) -> None:
    x = normal(rng, 3, 8)
    kept = x.copy()
    ops.norm(x, weight(normal(rng, 8)), 1e-6, x)
    table = RopeTable(np.ones(4, np.float32), "neox", 1.0, reference)
    heads, w = x.reshape(3, 1, 8), weight(normal(rng, 8))
    ops.rope(heads, heads, np.arange(3, dtype=np.int32), table, (w, w), 1e-6)
    assert np.array_equal(x, kept)
