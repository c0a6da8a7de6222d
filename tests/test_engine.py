"""The engine's life around a model: streams, limits, cancelling, failing, closing."""

from __future__ import annotations

import gc
import queue
import threading

import numpy as np
import pytest

from octavo.engine.engine import Engine
from octavo.errors import BusyError, ContextFullError, OctavoError, RequestError, UnsupportedError
from octavo.types import GrammarSpec, SamplingParams, Token
from scripted_model import ScriptedModel, counting, make_engine, saying

GREEDY = SamplingParams(temperature=0)


def greedy(n: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=n)


def test_stream_says_what_the_model_says() -> None:
    with make_engine(ScriptedModel(saying([7, 8, 9], 3))) as engine:
        stream = engine.submit([1, 2, 3], GREEDY)
        assert [token.id for token in stream] == [7, 8, 9]
        assert stream.finish_reason == "stop"
        usage = stream.usage
        assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (3, 0, 3)
        assert 0 < usage.prompt_seconds <= usage.first_token_seconds
        assert list(stream) == []


def test_steps_hold_the_right_tokens_and_positions() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, piece_tokens=3) as engine:
        engine.submit([5, 6, 7, 8], greedy(3)).ids()
    assert model.log == [([5, 6, 7], [0, 1, 2]), ([8], [3]), ([9], [4]), ([10], [5])]


def test_limits_end_a_stream() -> None:
    with make_engine(ScriptedModel(counting), context=10) as engine:
        stream = engine.submit([1, 2], greedy(4))
        assert stream.ids() == [3, 4, 5, 6]
        assert stream.finish_reason == "length"
        full = engine.submit([1, 2], GREEDY)
        assert len(full.ids()) == 8
        assert full.finish_reason == "length"
        assert engine.submit([1, 2], greedy(0)).ids() == []
        one_left = engine.submit([1] * 9, GREEDY)
        assert len(one_left.ids()) == 1
        with pytest.raises(ContextFullError, match="10 tokens"):
            engine.submit([1] * 10)


@pytest.mark.parametrize(
    ("ids", "message"), [([], "empty"), ([1, 64], "1 to 64"), ([-1, 2], "-1 to 2")]
)
def test_bad_prompts_are_refused_at_once(ids: list[int], message: str) -> None:
    with make_engine(ScriptedModel(counting)) as engine, pytest.raises(RequestError, match=message):
        engine.submit(ids)


def test_own_stop_ids_and_ignored_ones() -> None:
    with make_engine(ScriptedModel(saying([7, 8, 9], 2))) as engine:
        stream = engine.submit([1, 2], SamplingParams(temperature=0, stop_ids=frozenset({8})))
        assert stream.ids() == [7]
        assert stream.finish_reason == "stop"
        on = engine.submit([1, 2], SamplingParams(temperature=0, ignore_eos=True, max_tokens=5))
        assert len(on.ids()) == 5


def test_several_at_once_are_batched() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model) as engine:
        streams = [engine.submit([10 * i + 1], greedy(3)) for i in range(4)]
        model.free()
        assert [s.ids() for s in streams] == [[10 * i + 2 + j for j in range(3)] for i in range(4)]
    assert max(len(ids) for ids, _ in model.log) >= 3


def test_long_prompt_does_not_stop_an_answer() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model, piece_tokens=8, context=1024) as engine:
        answer = engine.submit([1], greedy(20))
        model.allow(2)
        prompt = engine.submit([30] * 80, greedy(1))
        model.free()
        prompt.ids()
        answer.ids()
    kinds = [len(ids) > 1 for ids, _ in model.log]
    first = kinds.index(True)
    assert kinds[first : first + 8] == [True, False] * 4


def test_cancel_while_queued() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model, max_running=1) as engine:
        running = engine.submit([1], greedy(5))
        queued = engine.submit([2], greedy(5))
        queued.cancel()
        model.allow(2)
        assert queued.ids() == []
        assert queued.finish_reason == "cancelled"
        model.free()
        assert len(running.ids()) == 5


def test_cancel_while_prompt_is_computed() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model, piece_tokens=4) as engine:
        stream = engine.submit([1] * 100, greedy(5))
        model.allow(3)
        stream.cancel()
        model.free()
        assert stream.ids() == []
        assert stream.finish_reason == "cancelled"
    assert len(model.log) <= 5


def test_cancel_while_generating() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model) as engine:
        stream = engine.submit([1], GREEDY)
        model.allow(3)
        stream.cancel()
        model.free()
        assert len(stream.ids()) in (3, 4)
        assert stream.finish_reason == "cancelled"
    assert len(model.log) <= 5


def test_dropped_stream_is_cancelled() -> None:
    with make_engine(ScriptedModel(counting), context=2000, n_pages=64) as engine:
        stream = engine.submit([1], GREEDY)
        next(stream)
        del stream
        gc.collect()
        assert engine.submit([1], greedy(1)).ids() == [2]
        deadline = threading.Event()
        for _ in range(200):
            if engine.stats.requests.get("cancelled"):
                break
            deadline.wait(0.01)
        assert engine.stats.requests.get("cancelled") == 1


def test_leaving_the_with_block_cancels() -> None:
    with make_engine(ScriptedModel(counting), context=4000, n_pages=64) as engine:
        with engine.submit([1], GREEDY) as stream:
            next(stream)
        stream.ids()
        assert stream.finish_reason == "cancelled"


def test_poisoned_step_fails_its_sequences_only() -> None:
    model = ScriptedModel(counting, poison=[40])
    with make_engine(model) as engine:
        bad = engine.submit([40], greedy(5))
        with pytest.raises(OctavoError, match="poisoned"):
            bad.ids()
        assert bad.finish_reason == "error"
        assert engine.submit([1], greedy(2)).ids() == [2, 3]


def test_spoilt_logits_fail_one_of_a_batch() -> None:
    model = ScriptedModel(counting, spoilt=[40])
    model.hold()
    with make_engine(model) as engine:
        bad, good = engine.submit([38], greedy(5)), engine.submit([1], greedy(5))
        model.free()
        with pytest.raises(OctavoError, match="no numbers"):
            bad.ids()
        assert good.ids() == [2, 3, 4, 5, 6]


def test_too_many_waiting_are_refused() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model, max_running=1, max_waiting=2) as engine:
        streams = [engine.submit([1], greedy(1)) for _ in range(3)]
        with pytest.raises(BusyError):
            engine.submit([1])
        model.free()
        assert [s.ids() for s in streams] == [[2]] * 3
        assert engine.submit([1], greedy(1)).ids() == [2]


def test_close_ends_everyone() -> None:
    model = ScriptedModel(counting)
    model.hold()
    engine = make_engine(model, max_running=1)
    streams = [engine.submit([1], GREEDY) for _ in range(3)]
    model.allow(2)
    closer = threading.Thread(target=engine.close)
    closer.start()
    model.free()
    closer.join(timeout=30)
    assert not closer.is_alive()
    for stream in streams:
        stream.ids()
        assert stream.finish_reason in ("cancelled", "length")
    assert streams[2].finish_reason == "cancelled"
    with pytest.raises(OctavoError, match="closed"):
        engine.submit([1])
    engine.close()


def test_second_turn_starts_from_the_first() -> None:
    model = ScriptedModel(counting)
    with make_engine(model) as engine:
        first = engine.submit([1, 2, 3], greedy(4))
        answer = first.ids()
        second = engine.submit([1, 2, 3, *answer, 50], greedy(2))
        assert second.ids() == [51, 52]
        assert second.usage.cached_tokens == 6
        assert engine.stats.cached_tokens == 6


def test_little_memory_lets_everyone_finish() -> None:
    # Four answers of 150 tokens need 3 pages each at the end; there are 7.
    model = ScriptedModel(counting)
    with make_engine(model, context=200, n_pages=7) as engine:
        model.hold()
        streams = [engine.submit([i + 1], greedy(150)) for i in range(4)]
        model.free()
        for i, stream in enumerate(streams):
            expected, at = [], i + 1
            for _ in range(150):
                at = counting(at, 0)
                expected.append(at)
            assert stream.ids() == expected
            assert stream.finish_reason == "length"
        assert engine.stats.preemptions > 0


def test_memory_for_less_than_the_context() -> None:
    with make_engine(ScriptedModel(counting), context=500, n_pages=2) as engine:
        stream = engine.submit([1], GREEDY)
        assert len(stream.ids()) == 128
        assert stream.finish_reason == "length"
        too_long = engine.submit([1] * 200, GREEDY)
        with pytest.raises(ContextFullError, match="pages"):
            too_long.ids()


def test_grammar_errors_come_from_submit() -> None:
    with make_engine(ScriptedModel(counting)) as engine:
        with pytest.raises(RequestError, match="regex"):
            engine.submit([1], SamplingParams(grammar=GrammarSpec("regex", "(")))
        assert engine.submit([1], greedy(1)).ids() == [2]


def test_embeddings_are_pooled_states() -> None:
    # The scripted state of a token is its id, four times.
    model = ScriptedModel(counting, pooling="mean")
    with make_engine(model, piece_tokens=2) as engine:
        vectors = engine.embed([[1, 2, 3], [7], [5, 6]])
        np.testing.assert_allclose(vectors[:, 0], [2, 7, 5.5])
        last = engine.embed([[1, 2, 3]], pooling="last")
        np.testing.assert_allclose(last, [[3, 3, 3, 3]])
        assert engine.embed([]).shape == (0, 4)


def test_embedding_needs_a_pooling() -> None:
    with make_engine(ScriptedModel(counting)) as engine, pytest.raises(UnsupportedError):
        engine.embed([[1]])


def test_who_listens_is_called_after_every_step() -> None:
    calls: queue.SimpleQueue[int] = queue.SimpleQueue()
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model) as engine:
        stream = engine.submit([1], greedy(3))
        stream.listen(lambda: calls.put(1))
        items = stream.items(wait=False)
        assert calls.get(timeout=20)
        assert next(items) is None
        model.free()
        for _ in range(3):  # two tokens; the third and the end
            assert calls.get(timeout=20)
        assert [item.id for item in items if isinstance(item, Token)] == [2, 3, 4]
    assert calls.empty()


def test_failing_listener_ends_its_request_only() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model, context=4000) as engine:
        stream = engine.submit([1], GREEDY)
        is_first = iter([True])
        stream.listen(lambda: None if next(is_first, False) else [][0])
        model.free()
        stream.ids()
        assert stream.finish_reason == "cancelled"
        assert engine.submit([1], greedy(1)).ids() == [2]


def test_stats_count() -> None:
    with make_engine(ScriptedModel(counting)) as engine:
        engine.submit([1, 2], greedy(3)).ids()
        stats = engine.stats.snapshot()
    assert stats["prompt_tokens"] == 2
    assert stats["requests"] == {"length": 1}
    assert stats["decode_steps"] == 2


def test_engines_without_vocabulary_or_store() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, vocabulary=None, prefixes=None) as engine:
        assert isinstance(engine, Engine)
        assert engine.submit([59], greedy(3)).ids() == [60, 1, 2]
        with pytest.raises(RequestError, match="tokenizer"):
            engine.submit([1], SamplingParams(grammar=GrammarSpec("regex", "a")))
