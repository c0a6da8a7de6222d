"""Whole models on the GPU: the reference's logits, however tokens are cut and batched.

In Triton's interpreter a step takes seconds, so models are cut down and prompts short; on a
device the signature tests run too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import test_signature
from gpu_backend import IS_INTERPRETED, gpu
from model_steps import load
from octavo import models
from octavo.engine.steps import Piece, Steps
from octavo.kv.cache import Cache
from octavo.ops import reference
from test_signature import DRAFTERS, Subject

ONE_BLOCK = {"block_count": 1, "feed_forward_length": 128}
PAIR = {"block_count": 2, "full_attention_interval": 2}
SMALL: dict[str, dict[str, Any]] = {
    "gemma3": {
        "block_count": 2,
        "attention.sliding_window_pattern": 2,
        "attention.sliding_window": 3,
    },
    "qwen35": {**PAIR, "feed_forward_length": 128},
    "qwen35moe": PAIR,
    "qwen3moe": {"block_count": 1},
    "qwen3next": PAIR,
}
TOKENS = [7, 200, 31]


@pytest.fixture(scope="module")
def small_file(tiny_file: Callable[..., Path]) -> Callable[[str], Path]:
    def get(arch: str) -> Path:
        changes = SMALL.get(arch, ONE_BLOCK) if IS_INTERPRETED else {}
        return tiny_file(arch, changes=changes)

    return get


def logits(path: Path, backend: ModuleType, lengths: list[int]) -> np.ndarray:
    """Logits of TOKENS, in pieces of these lengths; single ones are recorded steps."""
    steps, cache = steps_of(path, backend)
    timeline, rows = cache.open(), []
    for n in lengths:
        ids = TOKENS[timeline.n_tokens :][:n]
        timeline.reserve(n)
        piece = Piece(timeline, timeline.n_tokens, ids, n)
        rows.append(steps.run([piece], record=n == 1).logits.copy())
        timeline.advance(ids)
    return np.concatenate(rows)


def steps_of(path: Path, backend: ModuleType) -> tuple[Steps, Cache]:
    model = load(path, backend)
    cache = Cache(model.state(), n_pages=4, n_slots=4, format="f16", backend=backend)
    return Steps(model, cache), cache


def divergence(expected: np.ndarray, found: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence of rows of logits."""
    p, q = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (expected, found))
    return float(np.sum(np.exp(p) * (p - q), axis=1).mean())


@pytest.mark.parametrize("arch", models.architectures())
def test_logits_are_the_reference(arch: str, small_file: Callable[[str], Path]) -> None:
    path = small_file(arch)
    expected = logits(path, reference, [3]).astype(np.float64)
    for lengths in [3], [1, 1, 1]:  # of the single ones, two are a recorded step replayed
        found = logits(path, gpu, lengths).astype(np.float64)
        assert divergence(expected, found) <= 1e-3
        np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))


def test_neighbours_do_not_matter(small_file: Callable[[str], Path]) -> None:
    path = small_file("qwen35moe")
    alone = logits(path, gpu, [3]).astype(np.float64)
    steps, cache = steps_of(path, gpu)
    first, second = cache.open(), cache.open()
    second.reserve(2)
    first.reserve(3)
    pieces = [Piece(second, 0, [9, 8], 1), Piece(first, 0, TOKENS[:3], 3)]
    together = steps.run(pieces).logits[1:].astype(np.float64)
    # On a card the longer step multiplies in its matrix units, the shorter one does not.
    assert divergence(alone, together) <= (1e-5 if IS_INTERPRETED else 1e-3)


@pytest.fixture(scope="module", params=models.architectures())
def subject(request: pytest.FixtureRequest, tiny_file: Callable[..., Path]) -> Subject:
    if IS_INTERPRETED:
        pytest.skip("the interpreter would take minutes: for a device only")
    return Subject(request.param, tiny_file(request.param, mtp=request.param in DRAFTERS), gpu)


test_pieces_do_not_matter = test_signature.test_pieces_do_not_matter
test_neighbours_in_steps_do_not_matter = test_signature.test_neighbours_do_not_matter
