"""Whole models whose experts are in two places: the reference's logits, while residents move.

In Triton's interpreter a step takes a second, so models are cut down and texts short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octavo
from gpu_backend import IS_INTERPRETED, gpu
from model_steps import load
from octavo import loading
from octavo.engine.steps import Piece, Steps
from octavo.errors import SettingError
from octavo.experts.residents import Residents
from octavo.kv.cache import Cache
from octavo.models import Model
from octavo.ops import reference
from octavo.ops.gpu.split import Split
from octavo.plan import hardware
from octavo.plan.gpus import Gpu
from octavo.plan.hardware import Hardware
from test_gpu_engine import divergence

SMALL: dict[str, dict[str, Any]] = {
    "qwen3moe": {"block_count": 1},
    "qwen35moe": {"block_count": 2, "full_attention_interval": 2},
}
TOKENS = [7, 200, 31]


@pytest.fixture(scope="module")
def small_file(tiny_file: Callable[..., Path]) -> Callable[..., Path]:
    def get(arch: str, **options: Any) -> Path:
        return tiny_file(arch, changes=SMALL[arch], **options)

    return get


class Conversation:
    """Steps of one model with room for two sequences."""

    def __init__(self, path: Path, backend: Any, n_slots: int | None = None) -> None:
        """`n_slots`: experts on the card, the others in main memory; None: no split."""
        self.model: Model = load(path, backend)
        self.residents = None if n_slots is None else residents_of(self.model, n_slots)
        settle = None if self.residents is None else self.residents.settle
        cache = Cache(self.model.state(), n_pages=4, n_slots=4, format="f16", backend=backend)
        self.steps, self.cache = Steps(self.model, cache, settle), cache

    def logits(self, ids: list[int], lengths: list[int]) -> np.ndarray:
        """In pieces of these lengths; single tokens are recorded steps."""
        timeline, rows = self.cache.open(), []
        for n in lengths:
            own = ids[timeline.n_tokens :][:n]
            timeline.reserve(n)
            piece = Piece(timeline, timeline.n_tokens, own, n)
            rows.append(self.steps.run([piece], record=n == 1).logits.astype(np.float64))
            timeline.advance(own)
        timeline.close()
        return np.concatenate(rows)


def residents_of(model: Model, n_slots: int) -> Residents:
    banks = model.banks()
    slot_bytes = Split(banks, 0).slot_bytes
    store = Split(banks, 4 * slot_bytes)
    store.make_pool(n_slots * slot_bytes)
    residents = Residents(store, floor=0)
    residents.fill()
    return residents


def alike(expected: np.ndarray, found: np.ndarray) -> bool:
    same_best = (found.argmax(axis=1) == expected.argmax(axis=1)).all()
    return bool(same_best) and divergence(expected, found) <= 1e-3


@pytest.mark.parametrize("arch", SMALL)
def test_logits_are_the_reference_while_residents_move(
    arch: str, small_file: Callable[..., Path]
) -> None:
    path = small_file(arch)
    expected = Conversation(path, reference).logits(TOKENS, [3])
    for n_slots, lengths in ((0, [3]), (5, [1, 1, 1])) if arch == "qwen3moe" else ((3, [2, 1]),):
        talk = Conversation(path, gpu, n_slots)
        residents = talk.residents
        assert residents is not None
        before = residents.store.slots.copy()
        assert alike(expected, talk.logits(TOKENS, lengths))
        for _ in range(2):  # to decide, and to publish
            residents.settle()
            residents.finish()
        assert residents.n_asked == 3 * 3 * len(before)
        assert (residents.n_found > 0) == (n_slots > 0)
        assert (residents.store.slots != before).any() == (n_slots > 0)


def test_neighbours_do_not_matter(small_file: Callable[..., Path]) -> None:
    path = small_file("qwen3moe")
    expected = Conversation(path, reference).logits(TOKENS, [3])
    talk = Conversation(path, gpu, 3)
    first, second = talk.cache.open(), talk.cache.open()
    first.reserve(3)
    second.reserve(2)
    pieces = [Piece(second, 0, [9, 8], 1), Piece(first, 0, TOKENS, 3)]
    together = talk.steps.run(pieces).logits[1:].astype(np.float64)
    assert alike(expected, together)


def test_drafts(small_file: Callable[..., Path]) -> None:
    path = small_file("qwen35moe", mtp=True)
    found = []
    for backend, n_slots in (reference, None), (gpu, 3):
        talk = Conversation(path, backend, n_slots)
        assert talk.model.config.n_mtp == 1
        timeline = talk.cache.open()
        timeline.reserve(3)
        piece = [Piece(timeline, 0, TOKENS[:2], 2)]
        out = talk.steps.run(piece)
        before = np.concatenate([np.zeros_like(out.hidden[:1]), out.hidden[:1]])
        drafted = talk.steps.draft(piece, before).logits.astype(np.float64)
        found.append((out.logits.astype(np.float64), drafted))
        if talk.residents is not None:
            talk.residents.finish()
            assert talk.residents.n_asked == 2 * 3
            talk.residents.settle()  # as after the next step of the trunk
            talk.residents.finish()
            assert talk.residents.n_asked == 2 * 2 * 3  # two tokens, two blocks, three experts
    for expected, own in zip(*found, strict=True):
        assert alike(expected, own)


MACHINE = Hardware(
    32 * 10**9, 30 * 10**9, 2, "", True, gpus=(Gpu("a card", 4 * 10**9, 4 * 10**9, (8, 9)),)
)


@pytest.mark.skipif(not IS_INTERPRETED, reason="the card is made up")
def test_a_session(small_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "probe", lambda: MACHINE)
    path = small_file("qwen3moe")
    wishes: dict[str, Any] = {"context": 64, "sequences": 1, "batch": 16, "speculate": "off"}
    on_card = wishes | {"backend": "gpu", "weights": "read", "placement": "split"}
    plan = loading.plan_for(path, **on_card)
    assert plan.video is not None
    assert plan.video.n_slots == 8
    small = replace(plan, video=replace(plan.video, n_slots=6))
    options: dict[str, Any] = {"max_tokens": 3, "temperature": 0.0, "ignore_eos": True}
    with octavo.load(path, **wishes) as session:
        expected = session.generate([7, 200, 31], **options).content
    with octavo.load(path, plan=small, **on_card) as session:
        assert session.generate([7, 200, 31], **options).content == expected
        residents = session.residents
        assert residents is not None
        residents.finish()
        assert residents.store.n_slots == 6
        assert residents.n_asked == 3 * 3  # a token each: of the prompt the last one alone
    heat = list((Path(octavo.settings.Settings.from_environment().cache_dir)).rglob("*.heat"))
    assert len(heat) == 1


def test_a_placement_that_does_not_go_with_the_device(small_file: Callable[..., Path]) -> None:
    with pytest.raises(SettingError, match="placement cpu does not go with the device gpu"):
        octavo.load(small_file("qwen3moe"), backend="gpu", placement="cpu")
