"""Batches, recorded steps and their limits, on a model that notes what it is given."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.engine.steps import MAX_RECORDED_TOKENS, MAX_STEP_TOKENS, Piece, Steps
from octavo.kv.batch import Batch
from octavo.kv.cache import Cache, Timeline
from octavo.ops import Array
from scripted_model import ScriptedModel, counting, make_cache


def steps_on(model: ScriptedModel) -> tuple[Steps, Cache]:
    cache = make_cache(model.state())
    return Steps(model, cache), cache


def timeline_of(cache: Cache, n_tokens: int, room: int = 40) -> Timeline:
    timeline = cache.open()
    timeline.reserve(n_tokens + room)
    timeline.advance([0] * n_tokens)
    return timeline


def test_batch_says_where_tokens_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel(counting)
    steps, cache = steps_on(model)
    a, b = timeline_of(cache, 70), timeline_of(cache, 3)
    seen: list[Batch] = []
    forward = model.forward
    monkeypatch.setattr(
        model,
        "forward",
        lambda batch, layers, every_hidden=True: (seen.append(batch), forward(batch, layers))[1],
    )
    steps.run([Piece(a, 70, [5, 6], 1), Piece(b, 3, [7, 8, 9], 2, (4, 2, 6))])
    (batch,) = seen
    assert batch.ids.tolist() == [5, 6, 7, 8, 9]
    assert batch.positions.tolist() == [70, 71, 3, 4, 5]
    assert batch.starts.tolist() == [0, 2, 5]
    assert batch.n_past.tolist() == [70, 3]
    assert batch.outputs.tolist() == [1, 3, 4]
    assert batch.state_slots.tolist() == [-1, a.slot, 4, 2, 6]
    assert batch.pages[0, :2].tolist() == a.pages
    assert batch.pages[1].tolist() == [*b.pages, 0, 0, 0]


@pytest.mark.parametrize("n", [1, 3])
def test_replayed_steps_equal_fresh_ones(n: int) -> None:
    model = ScriptedModel(counting)
    steps, cache = steps_on(model)
    timeline = timeline_of(cache, 10)
    for first in (1, 20, 40):
        piece = [Piece(timeline, first, list(range(first, first + n)), n)]
        got = steps.run(piece, record=True)
        assert got.logits.argmax(axis=1).tolist() == [i + 1 for i in piece[0].ids]
        assert got.hidden[:, 0].tolist() == list(piece[0].ids)
        assert model.log[-1] == (list(piece[0].ids), list(piece[0].ids))
        assert not steps.will_record(piece)
        fresh: Array = Steps(model, cache).run(piece).logits
        np.testing.assert_array_equal(got.logits, fresh)


def test_recorded_steps_are_bounded() -> None:
    steps, cache = steps_on(ScriptedModel(counting))
    timeline = timeline_of(cache, 10, 100)

    def piece(n: int) -> list[Piece]:
        return [Piece(timeline, 10, [1] * n, n)]

    steps.run(piece(MAX_STEP_TOKENS + 1), record=True)
    assert not steps.will_record(piece(MAX_STEP_TOKENS + 1))
    steps.run(piece(2))
    assert steps.will_record(piece(2))
    for n in range(1, 20):
        steps.run(piece(n), record=True)
        steps.run(piece(1), record=True)
    kept = [n for n in range(1, 20) if not steps.will_record(piece(n))]
    assert sum(kept) <= MAX_RECORDED_TOKENS
    assert kept[0] == 1
    assert kept[-1] == 19
