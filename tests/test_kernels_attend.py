"""Attention kernels of every instruction-set level against the plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from cache_steps import (
    Piece,
    attention_layer,
    copied,
    make_batch,
    pages_for,
    scattered_pages,
)
from octavo import _native
from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec
from octavo.ops import cpu, reference

FORMATS = ["f32", "f16", "q8_0"]
# query heads, key heads, key dim, value dim
SHAPES = [
    (1, 1, 7, 5),
    (9, 3, 64, 64),
    (4, 1, 256, 256),
    (6, 2, 33, 48),
    (13, 1, 40, 80),
    (2, 2, 96, 128),
]
STEPS: list[list[Piece]] = [
    [],
    [(0, 0)],
    [(0, 1)],
    [(63, 1), (64, 1), (65, 2)],
    [(0, 63), (5, 0), (0, 64), (0, 65)],
    [(190, 9), (0, 33), (128, 1), (120, 8)],
    [(0, 257)],
]


@pytest.fixture(params=_native.levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction-set level of this processor in turn."""
    cpu.pool()  # starts with the level of the environment; that is set aside here
    before = cpu.level()
    cpu.set_level(request.param)
    yield request.param
    cpu.set_level(before)


@dataclass
class Story:
    """Sequences of tokens with their queries, keys and values, all random."""

    q: list[np.ndarray]
    k: list[np.ndarray]
    v: list[np.ndarray]

    def step(self, pieces: list[Piece]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, k and v of these pieces, as views of wider arrays, as models pass them."""

        def rows(parts: list[np.ndarray]) -> np.ndarray:
            own = [x[past : past + n] for x, (past, n) in zip(parts, pieces, strict=False)]
            x = np.concatenate([*own, parts[0][:0]])
            wide = np.full((len(x), x.shape[1] + 1, x.shape[2] + 3), np.nan, np.float32)
            wide[:, 1:, 1:-2] = x
            return wide[:, 1:, 1:-2]

        return rows(self.q), rows(self.k), rows(self.v)


def make_story(shape: tuple[int, int, int, int], n: int, n_sequences: int) -> Story:
    rng = np.random.default_rng(n)
    heads, kv_heads, d, dv = shape

    def draw(n_heads: int, dim: int) -> list[np.ndarray]:
        return [rng.standard_normal((n, n_heads, dim), np.float32) for _ in range(n_sequences)]

    return Story(draw(heads, d), draw(kv_heads, d), draw(kv_heads, dv))


def spec_of(shape: tuple[int, int, int, int], window: int = 0) -> AttentionSpec:
    return AttentionSpec(shape[1], shape[2], shape[3], 2 * shape[2] ** -0.5, window)


def filled(
    story: Story, spec: AttentionSpec, name: str, pieces: list[Piece], pages: np.ndarray
) -> AttentionLayer:
    """A layer that holds what comes before the pieces, written by the plain format."""
    layer = attention_layer(spec, name, pages.size, reference)
    write = formats.find(name).write
    for s, (n_past, _) in enumerate(pieces):
        for start in range(0, n_past, PAGE_TOKENS):
            own = slice(start, min(start + PAGE_TOKENS, n_past))
            page = int(pages[s, start // PAGE_TOKENS])
            write(layer, page, 0, story.k[s][own], story.v[s][own])
    return layer


def plain_attend(
    story: Story, pieces: list[Piece], layer: AttentionLayer, batch: Batch, *more: np.ndarray
) -> np.ndarray:
    """The plain result; on a q8_0 cache for queries rounded as the kernels round them."""
    q, k, v = story.step(pieces)
    if layer.format == "q8_0":
        scaled = (q * np.float32(layer.spec.scale)).astype(np.float32)
        groups = np.arange(q.shape[2]) // 32
        most = np.zeros((*q.shape[:2], groups[-1] + 1), np.float32)
        for group in range(groups[-1] + 1):
            most[:, :, group] = np.abs(scaled[:, :, groups == group]).max(axis=2, initial=0)
        inverse = np.divide(127, most, out=np.zeros_like(most), where=most > 0)
        numbers = np.rint(scaled * inverse[:, :, groups])
        q = numbers * (most / np.float32(127))[:, :, groups] / np.float32(layer.spec.scale)
    return reference.attend(q, k, v, layer, batch, *more)


def assert_close(actual: np.ndarray, expected: np.ndarray, name: str) -> None:
    if name != "q8_0":
        np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-5)
        return
    # Weights of a page are rounded to 1 / 16383 of the largest, and a query may round the other
    # way where it lies in the middle.
    error = np.linalg.norm(actual - expected, axis=1)
    assert (error <= 2e-3 * np.linalg.norm(expected, axis=1)).all()
    assert np.square(error).sum() <= 2e-7 * np.square(expected).sum()


@pytest.mark.parametrize("pieces", STEPS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_same_as_reference(
    name: str, shape: tuple[int, int, int, int], pieces: list[Piece], level: str
) -> None:
    story = make_story(shape, 260, max(1, len(pieces)))
    pages = scattered_pages(len(pieces), pages_for(pieces))
    plain = filled(story, spec_of(shape), name, pieces, pages)
    fast = copied(plain, cpu)
    batch = make_batch(pieces, pages)
    rng = np.random.default_rng(1)
    gate = rng.standard_normal((batch.n_tokens, shape[0], shape[3]), np.float32)
    for gates in ((), (gate,)):
        expected = plain_attend(story, pieces, plain, batch, *gates)
        actual = cpu.attend(*story.step(pieces), fast, batch, *gates)
        assert_close(actual, expected, name)
        np.testing.assert_array_equal(fast.data, plain.data)


@pytest.mark.parametrize("window", [1, 17, 64, 100, 1000])
@pytest.mark.parametrize("name", FORMATS)
def test_windows(name: str, window: int, level: str) -> None:
    shape = (6, 2, 33, 48)
    pieces = [(200, 1), (0, 150), (63, 40), (130, 5), (3, 1)]
    story = make_story(shape, 260, len(pieces))
    pages = scattered_pages(len(pieces), pages_for(pieces))
    plain = filled(story, spec_of(shape, window), name, pieces, pages)
    fast = copied(plain, cpu)
    batch = make_batch(pieces, pages)
    expected = plain_attend(story, pieces, plain, batch)
    assert_close(cpu.attend(*story.step(pieces), fast, batch), expected, name)


@pytest.mark.parametrize("window", [0, 700])
@pytest.mark.parametrize("name", FORMATS)
def test_long_contexts(name: str, window: int, level: str) -> None:
    shape = (5, 1, 256, 128)
    pieces = [(5200, 1), (2111, 3), (1500, 20)]  # spans that grow; several for each sequence
    story = make_story(shape, 5201, len(pieces))
    pages = scattered_pages(len(pieces), pages_for(pieces))
    plain = filled(story, spec_of(shape, window), name, pieces, pages)
    fast = copied(plain, cpu)
    batch = make_batch(pieces, pages)
    expected = plain_attend(story, pieces, plain, batch)
    assert_close(cpu.attend(*story.step(pieces), fast, batch), expected, name)


@pytest.mark.parametrize("window", [0, 90])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(4, 1, 256, 256), (6, 2, 33, 48)], ids=str)
def test_pieces_give_the_bits_of_the_whole(
    shape: tuple[int, int, int, int], name: str, window: int, level: str
) -> None:
    n = 333
    story = make_story(shape, n, 2)
    pages = scattered_pages(2, pages_for([(0, n)]))
    results = []
    for sizes in ([n], [129, 1, 8, 64, 9, n], [1] * n):
        layer = attention_layer(spec_of(shape, window), name, pages.size, cpu)
        done, out = 0, []
        for size in sizes:
            size = min(size, n - done)
            piece = [(done, size)]
            out.append(cpu.attend(*story.step(piece), layer, make_batch(piece, pages[:1])))
            done += size
        results.append(np.concatenate(out))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


def test_company_changes_nothing(level: str) -> None:
    shape = (6, 2, 64, 48)
    pieces = [(300, 1), (0, 40), (255, 2), (90, 100), (511, 1)]
    story = make_story(shape, 520, len(pieces))
    pages = scattered_pages(len(pieces), pages_for(pieces))
    layer = copied(filled(story, spec_of(shape), "f16", pieces, pages), cpu)
    batch = make_batch(pieces, pages)
    together = cpu.attend(*story.step(pieces), layer, batch).copy()
    for s, piece in enumerate(pieces):
        own = [(0, 0)] * s + [piece]
        alone = cpu.attend(
            *story.step(own + [(0, 0)] * (len(pieces) - s - 1)),
            layer,
            make_batch(own + [(0, 0)] * (len(pieces) - s - 1), pages),
        )
        np.testing.assert_array_equal(together[batch.starts[s] : batch.starts[s + 1]], alone)


def test_threads_change_nothing(level: str) -> None:
    shape = (6, 2, 64, 48)
    pieces = [(1800, 1), (0, 200), (255, 2)]
    story = make_story(shape, 1801, len(pieces))
    pages = scattered_pages(len(pieces), pages_for(pieces))
    layer = copied(filled(story, spec_of(shape), "q8_0", pieces, pages), cpu)
    before = cpu.pool().n_threads
    try:
        results = []
        for n_threads in (1, 3):
            cpu.set_threads(n_threads)
            results.append(cpu.attend(*story.step(pieces), layer, make_batch(pieces, pages)).copy())
    finally:
        cpu.set_threads(before)
    np.testing.assert_array_equal(results[0], results[1])


def test_a_recorded_step_follows_its_arrays(level: str) -> None:
    shape = (4, 2, 32, 32)
    story = make_story(shape, 900, 2)
    pages = scattered_pages(2, pages_for([(0, 900)]))
    layer = copied(filled(story, spec_of(shape), "f16", [(10, 1), (70, 1)], pages), cpu)
    q, k, v = (np.ascontiguousarray(x) for x in story.step([(10, 1), (70, 1)]))
    batch = make_batch([(10, 1), (70, 1)], pages)
    recording = cpu.capture(lambda: cpu.attend(q, k, v, layer, batch))
    for pieces in ([(11, 1), (71, 1)], [(600, 1), (899, 1)], [(63, 1), (64, 1)]):
        plain = filled(story, spec_of(shape), "f16", pieces, pages)
        layer.data[:] = plain.data
        for old, new in zip((q, k, v), story.step(pieces), strict=True):
            old[:] = new
        batch.n_past[:] = [past for past, _ in pieces]
        recording.replay()
        expected = reference.attend(q, k, v, plain, batch)
        assert_close(recording.result, expected, "f16")


def test_large_scores_do_not_overflow(level: str) -> None:
    shape = (2, 1, 32, 32)
    story = make_story(shape, 130, 1)
    story.q[0] *= 1000
    pages = scattered_pages(1, 3)
    plain = filled(story, spec_of(shape), "f32", [(0, 130)], pages)
    fast = copied(plain, cpu)
    batch = make_batch([(0, 130)], pages)
    expected = reference.attend(*story.step([(0, 130)]), plain, batch)
    actual = cpu.attend(*story.step([(0, 130)]), fast, batch)
    np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=1e-2)


def test_rounding_the_queries_costs_little(level: str) -> None:
    shape = (8, 2, 128, 128)
    pieces = [(700, 3)]
    story = make_story(shape, 703, 1)
    pages = scattered_pages(1, pages_for(pieces))
    exact = filled(story, spec_of(shape), "f32", pieces, pages)
    batch = make_batch(pieces, pages)
    expected = reference.attend(*story.step(pieces), exact, batch)
    errors = {}
    for name, backend in (("plain", reference), ("fast", cpu)):
        layer = copied(filled(story, spec_of(shape), "q8_0", pieces, pages), backend)
        actual = backend.attend(*story.step(pieces), layer, batch)
        errors[name] = np.square(actual - expected).sum() / np.square(expected).sum()
    assert errors["plain"] < errors["fast"] < 3 * errors["plain"] < 1e-3
