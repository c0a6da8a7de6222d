"""Attention on the GPU against the reference, on every cache format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cache_steps import Piece, attention_layer, make_batch, pages_for, scattered_pages
from gpu_backend import gpu, nmse, to_device, to_host
from gpu_bounds import watched as watched
from octavo import registry
from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec
from octavo.ops import reference
from octavo.ops.gpu.attend import Launch, attend, plan, run
from octavo.ops.gpu.device import find

FORMATS = ["f32", "f16", "q8_0"]
LIMITS = {"f32": 1e-11, "f16": 1e-6, "q8_0": 1e-6}
# query heads, key heads, key dim, value dim; and steps of several sequences
CASES: list[tuple[tuple[int, int, int, int], list[list[Piece]]]] = [
    ((1, 1, 7, 5), [[(0, 1)], [(0, 63), (5, 0), (0, 65)], [(130, 9), (0, 33), (120, 8)]]),
    ((3, 1, 64, 64), [[(63, 1), (64, 1), (65, 2)], [(100, 29)]]),
    ((4, 1, 256, 256), [[(63, 1), (0, 2)]]),
    ((6, 2, 33, 48), [[(127, 2), (0, 20)]]),
    ((13, 1, 40, 80), [[(60, 9)], [(10, 33)]]),
]
LONGEST = 410


class Story:
    """Sequences of tokens with their queries, keys, values and gates, all random."""

    def __init__(self, shape: tuple[int, int, int, int], n_sequences: int) -> None:
        rng = np.random.default_rng(n_sequences)
        heads, kv_heads, d, dv = shape
        sizes = (heads, d), (kv_heads, d), (kv_heads, dv), (heads, dv)
        self.parts = [
            [rng.standard_normal((LONGEST, *size), np.float32) for size in sizes]
            for _ in range(n_sequences)
        ]

    def step(self, pieces: list[Piece]) -> list[np.ndarray]:
        """q, k, v and gates of these pieces, as views of wider arrays, as models pass them."""
        found = []
        for part in range(4):
            own = [self.parts[s][part][past : past + n] for s, (past, n) in enumerate(pieces)]
            x = np.concatenate(own)
            wide = np.full((len(x), x.shape[1] + 1, x.shape[2] + 3), np.nan, np.float32)
            wide[:, 1:, 1:-2] = x
            found.append(wide[:, 1:, 1:-2])
        return found


def spec_of(shape: tuple[int, int, int, int], window: int = 0) -> AttentionSpec:
    return AttentionSpec(shape[1], shape[2], shape[3], 2 * shape[2] ** -0.5, window)


def filled(
    story: Story, spec: AttentionSpec, name: str, pieces: list[Piece], pages: np.ndarray
) -> AttentionLayer:
    """A layer that holds what comes before the pieces, written by the plain format."""
    layer = attention_layer(spec, name, pages.size, reference)
    for s, (n_past, _) in enumerate(pieces):
        for start in range(0, n_past, PAGE_TOKENS):
            own = slice(start, min(start + PAGE_TOKENS, n_past))
            _, k, v, _ = story.parts[s]
            page = int(pages[s, start // PAGE_TOKENS])
            formats.find(name).write(layer, page, 0, k[own], v[own])
    return layer


def on_device(x: np.ndarray) -> Any:
    """The view of wider memory, on the device."""
    wide = to_device(x.base)
    return wide[:, 1:, 1:-2]


def device_batch(batch: Batch) -> Batch:
    return Batch(*(to_device(x) for x in vars(batch).values()))


def device_layer(layer: AttentionLayer) -> AttentionLayer:
    return replace(layer, data=to_device(layer.data), backend=gpu)


def check(
    story: Story,
    spec: AttentionSpec,
    name: str,
    pieces: list[Piece],
    is_gated: bool = False,
    launch: Launch | None = None,
) -> None:
    pages = scattered_pages(len(pieces), pages_for(pieces))
    plain = filled(story, spec, name, pieces, pages)
    fast, batch = device_layer(plain), make_batch(pieces, pages)
    q, k, v, gate = story.step(pieces)
    expected = reference.attend(q, k, v, plain, batch, gate if is_gated else None)
    given = [on_device(x) for x in (q, k, v)]
    gates = on_device(gate) if is_gated else None
    if launch is None:
        found = attend(*given, fast, device_batch(batch), gates)
    else:
        found = to_device(np.full_like(expected, np.nan))
        run(*given, fast, device_batch(batch), gates, found, launch)
    assert nmse(found, expected) < LIMITS[name]
    np.testing.assert_array_equal(to_host(fast.data), plain.data)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_same_as_reference(
    name: str, case: tuple[tuple[int, int, int, int], list[list[Piece]]]
) -> None:
    shape, steps = case
    for pieces in steps:
        check(Story(shape, len(pieces)), spec_of(shape), name, pieces, len(pieces) % 2 == 0)


@pytest.mark.parametrize(("window", "name"), [(1, "f16"), (17, "q8_0"), (64, "f16"), (100, "f32")])
def test_windows(name: str, window: int) -> None:
    shape = (3, 1, 33, 48)
    pieces = [(200, 1), (0, 100), (63, 20), (3, 1)]
    check(Story(shape, len(pieces)), spec_of(shape, window), name, pieces)


@pytest.mark.parametrize(("splits", "window"), [(1, 0), (3, 150), (19, 0)])
@pytest.mark.parametrize("name", FORMATS)
def test_splits_and_blocks(name: str, splits: int, window: int) -> None:
    shape = (3, 1, 33, 48)
    for rows, positions, pieces in (
        (16, 64, [(400, 1), (0, 1), (390, 9)]),
        (16, 32, [(310, 6), (0, 0)]),
        (64, 32, [(200, 30)]),
    ):
        launch = Launch(rows, positions, splits, 4, 1)
        check(Story(shape, len(pieces)), spec_of(shape, window), name, pieces, True, launch)


@pytest.mark.parametrize("name", FORMATS)
def test_pieces_are_the_whole(name: str) -> None:
    shape, n = (2, 1, 64, 64), 140
    story = Story(shape, 1)
    pages = scattered_pages(1, pages_for([(0, n)]))
    results, bytes_held = [], []
    for sizes in ([n], [70, 1, 8, 49, 9, n]):
        layer = device_layer(attention_layer(spec_of(shape), name, pages.size, reference))
        done, out = 0, []
        for size in sizes:
            size = min(size, n - done)
            piece = [(done, size)]
            if size:
                given = [on_device(x) for x in story.step(piece)[:3]]
                batch = device_batch(make_batch(piece, pages))
                out.append(to_host(attend(*given, layer, batch)))
            done += size
        results.append(np.concatenate(out))
        bytes_held.append(to_host(layer.data))
    assert nmse(results[1], results[0]) < LIMITS[name]
    np.testing.assert_array_equal(bytes_held[1], bytes_held[0])


def test_large_scores_do_not_overflow() -> None:
    shape = (2, 1, 32, 32)
    story = Story(shape, 1)
    story.parts[0][0] *= 1000
    check(story, spec_of(shape), "f32", [(0, 130)])


def test_formats_are_those_of_the_cache() -> None:
    assert set(registry.names("ops.gpu.kv")) <= set(registry.names("kv.formats"))
    assert set(registry.names("ops.gpu.kv")) == set(FORMATS)


@pytest.mark.parametrize("n_tokens", [1, 8, 512, 4096])
@pytest.mark.parametrize("shape", [case[0] for case in CASES], ids=str)
def test_plans_fit(shape: tuple[int, int, int, int], n_tokens: int) -> None:
    device = replace(find(), n_processors=132, shared_bytes=232_448, arch=90)
    launch = plan(device, "f16", spec_of(shape), shape[0], n_tokens, 1, 4096)
    assert launch.rows >= shape[0] // shape[1]
    assert launch.splits * shape[1] <= 3 * 132
    assert launch.splits > 1 or n_tokens > 132
