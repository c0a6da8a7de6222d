"""Which finished work is reused, and what is given up when room is short."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import CacheFullError
from octavo.kv.cache import Cache, Timeline
from octavo.kv.prefix import PrefixStore
from octavo.kv.state import AttentionSpec, LayerSpec, RecurrentSpec
from octavo.ops import reference

BACKEND = reference
ATTENTION = AttentionSpec(1, 4, 4, 1.0)
RECURRENT = RecurrentSpec(1, 2, 4, 4, conv_kernel=2, tiled=True)
PLENTY = 1 << 40


def make(
    *specs: LayerSpec, n_pages: int = 64, n_snapshots: int = 6, budget_bytes: int = PLENTY
) -> tuple[Cache, PrefixStore]:
    cache = Cache(
        specs or (ATTENTION,),
        n_pages=n_pages,
        n_slots=4 + n_snapshots,
        format="f32",
        backend=BACKEND,
    )
    return cache, PrefixStore(cache, budget_bytes, n_snapshots)


def hybrid(**more: int) -> tuple[Cache, PrefixStore]:
    return make(ATTENTION, RECURRENT, **more)


def ids(*parts: int | range) -> np.ndarray:
    flat = [x for part in parts for x in (part if isinstance(part, range) else [part])]
    return np.array(flat, np.int32)


def run(
    store: PrefixStore, timeline: Timeline, tokens: np.ndarray, marks: tuple[int, ...] = ()
) -> None:
    """Compute `tokens` from where the timeline stands; the state is a digest of what it read."""
    for token in tokens[timeline.n_tokens :]:
        timeline.reserve(1)
        timeline.advance([token])
        for layer in timeline.cache.recurrent:
            layer.state[timeline.slot] = digest(timeline.ids)
        if timeline.n_tokens in marks:
            store.snapshot(timeline)


def digest(tokens: np.ndarray) -> np.float32:
    value = 1
    for token in tokens.tolist():
        value = (value * 31 + token + 7) % 65521
    return np.float32(value)


def ask(store: PrefixStore, tokens: np.ndarray, marks: tuple[int, ...] = ()) -> tuple[int, str]:
    """One request from beginning to end."""
    timeline, n_reused, _, reason = store.find(tokens)
    assert n_reused == timeline.n_tokens < len(tokens)
    np.testing.assert_array_equal(timeline.ids, tokens[:n_reused])
    for layer in timeline.cache.recurrent:
        assert n_reused == 0 or (layer.state[timeline.slot] == digest(tokens[:n_reused])).all()
    run(store, timeline, tokens, marks)
    store.keep(timeline)
    return n_reused, reason


def test_nothing_is_kept_at_first() -> None:
    _, store = make()
    assert ask(store, ids(range(10))) == (0, "nothing was kept")
    assert len(store) == 1


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 128, 129])
def test_the_last_token_is_always_computed(n: int) -> None:
    _, store = make()
    ask(store, ids(range(n)))
    n_reused, reason = ask(store, ids(range(n)))
    assert n_reused == n - 1
    assert "one token" in reason or "all but the last token" in reason


def test_the_reason_says_where_the_tokens_differ() -> None:
    _, store = make()
    ask(store, ids(range(100)))
    assert ask(store, ids(range(33), 999, range(50))) == (33, "diverged at token 33 of 84")
    n_reused, reason = ask(store, ids(range(100), range(5)))
    assert (n_reused, reason) == (100, "what was kept ends at token 100 of 105")


def test_the_longest_prefix_is_taken() -> None:
    _, store = make()
    ask(store, ids(range(50), 500))
    ask(store, ids(range(70), 600))
    ask(store, ids(range(60), 700))
    assert ask(store, ids(range(90)))[0] == 70


def test_recurrent_models_go_back_to_the_newest_snapshot() -> None:
    _, store = hybrid()
    ask(store, ids(range(100)), marks=(20, 40, 80))
    n_reused, reason = ask(store, ids(range(60), 999, 998))
    assert n_reused == 40
    assert reason == "no snapshot between token 40 and token 60, up to which the tokens agree"
    assert ask(store, ids(range(10), 999)) == (
        0,
        "no snapshot between the start and token 10, up to which the tokens agree",
    )
    assert ask(store, ids(range(100), 7))[0] == 100  # the state at the end was kept too


def test_a_regenerated_answer_starts_before_the_answer() -> None:
    _, store = hybrid()
    ask(store, ids(range(30), 1, 2, 3), marks=(29,))
    assert ask(store, ids(range(30)))[0] == 29


def test_running_timelines_are_found_too() -> None:
    for cache, store in (make(), hybrid()):
        prompt = ids(range(100))
        first = store.find(prompt).timeline
        run(store, first, prompt, marks=(70,))
        second, n_reused, *_ = store.find(ids(range(90), 5, 6))
        assert n_reused == (70 if cache.recurrent else 90)
        run(store, second, ids(range(90), 5, 6))
        run(store, first, ids(range(120)))
        np.testing.assert_array_equal(first.ids, np.arange(120))
        store.keep(second)
        store.keep(first)
        assert len(store) == 2


def test_a_longer_sequence_replaces_its_beginning() -> None:
    for cache, store in (make(), hybrid()):
        for n in range(10, 110, 10):
            ask(store, ids(range(n)))
        assert len(store) == 1
        store.clear()
        assert (cache.pages.n_free, store.n_bytes) == (64, 0)
        assert cache.slots.n_free == (10 if cache.recurrent else 0)


def test_an_abandoned_timeline_does_no_harm() -> None:
    cache, store = hybrid()
    timeline = store.find(ids(range(10))).timeline
    timeline.close()
    assert ask(store, ids(range(10)))[0] == 0
    store.clear()
    assert cache.slots.n_free == 10


def test_the_budget_counts_shared_pages_once_and_evicts_the_oldest() -> None:
    cache, store = make(budget_bytes=3 * 64 * 8 * 4)  # three pages
    assert cache.page_bytes == 64 * 8 * 4
    ask(store, ids(range(64), 1))  # two pages
    ask(store, ids(range(64), 2))  # one page shared, one of its own
    assert (len(store), store.n_bytes) == (2, 3 * cache.page_bytes)
    ask(store, ids(range(1000, 1010)))
    assert len(store) == 2
    assert ask(store, ids(range(64), 2, 3))[0] == 65
    assert ask(store, ids(range(64), 1, 3))[0] == 64  # of the first only the shared part is left


def test_what_was_used_last_stays() -> None:
    cache, store = make(budget_bytes=2 * 64 * 8 * 4)
    ask(store, ids(range(100, 110)))
    ask(store, ids(range(200, 210)))
    store.find(ids(range(100, 105), 1)).timeline.close()
    ask(store, ids(range(300, 310)))
    starts = sorted(int(t.ids[0]) for t in store)
    assert starts == [100, 300]


def test_running_sequences_get_the_pages_of_kept_ones() -> None:
    cache, store = make(n_pages=4)
    ask(store, ids(range(120)))
    ask(store, ids(range(1000, 1120)))
    assert cache.pages.n_free == 0
    timeline = store.find(ids(range(2000, 2010))).timeline
    timeline.reserve(4 * 64)
    assert len(store) == 0


def test_what_is_kept_stays_when_giving_it_up_would_not_be_enough() -> None:
    cache, store = make(n_pages=4)
    ask(store, ids(range(120)))
    timeline = store.find(ids(range(120), 1)).timeline
    cache.open().reserve(64)
    with pytest.raises(CacheFullError, match="3 more cache pages"):
        timeline.reserve(4 * 64 - 120)  # three are needed: one to copy the page that is shared
    assert timeline.n_tokens == 120
    assert len(store) == 1


def test_a_full_pool_shared_with_what_is_kept_needs_no_copy() -> None:
    """The last page is shared; once the kept twin goes, it is the runner's own."""
    cache, store = make(n_pages=4)
    ask(store, ids(range(3 * 64 + 10)))
    timeline = store.find(ids(range(3 * 64 + 10), 1)).timeline
    shared = timeline.pages[-1]
    assert (cache.pages.n_free, cache.pages.owners(shared)) == (0, 2)
    timeline.reserve(40)
    assert (timeline.pages[-1], cache.pages.owners(shared), len(store)) == (shared, 1, 0)
    timeline.close()
    assert cache.pages.n_free == 4


def test_a_timeline_is_known_before_its_first_step() -> None:
    _, store = make()
    prompt = ids(range(10))
    first = store.find(prompt).timeline
    store.find(prompt)
    run(store, first, prompt)
    assert store.find(prompt).n_reused == 9


def test_something_larger_than_the_budget_is_not_kept() -> None:
    cache, store = make(budget_bytes=64 * 8 * 4)
    ask(store, ids(range(65)))
    assert (len(store), cache.pages.n_free) == (0, 64)


def test_without_snapshots_recurrent_timelines_are_not_kept() -> None:
    cache, store = hybrid(n_snapshots=0)
    ask(store, ids(range(10)), marks=(5,))
    assert len(store) == 0
    assert cache.slots.n_free == 4


def test_fifty_turns_stay_within_three_snapshots() -> None:
    cache, store = hybrid(n_snapshots=3)
    conversation = ids(range(20))
    for turn in range(50):
        n_reused, _ = ask(store, conversation, marks=(5, len(conversation) - 1))
        assert len(cache.snapshot_slots) <= 3
        assert n_reused >= len(conversation) - 4 or turn == 0
        conversation = np.concatenate([conversation, ids(turn, turn, turn)])
    assert cache.slots.n_free == 4 + 3 - len(cache.snapshot_slots)


def test_a_snapshot_that_forks_share_goes_as_one() -> None:
    cache, store = hybrid(n_snapshots=4)
    ask(store, ids(range(11)), marks=(5, 10))
    timeline = store.find(ids(range(50))).timeline
    run(store, timeline, ids(range(40)), marks=(30, 40))
    assert timeline.snapshots.keys() == {5, 10, 30, 40}  # 11 was the least useful
    assert len(cache.snapshot_slots) == 4


def test_one_conversation_does_not_crowd_out_another() -> None:
    _, store = hybrid(n_snapshots=4)
    ask(store, ids(range(1000, 1020)), marks=(10,))
    ask(store, ids(range(60)), marks=(10, 20, 30, 40, 50))
    assert ask(store, ids(range(1000, 1020), 1))[0] == 20


def test_snapshots_count_against_the_one_budget() -> None:
    page, slot = 64 * 8 * 4, RECURRENT.n_bytes
    cache, store = hybrid(budget_bytes=page + 2 * slot)
    assert (cache.page_bytes, cache.slot_bytes) == (page, slot)
    ask(store, ids(range(30)), marks=(5, 10, 15))
    assert page < store.n_bytes <= page + 2 * slot
    assert ask(store, ids(range(30), 1))[0] == 30


def side_request(store: PrefixStore, number: int, n_tokens: int = 70) -> None:
    start = 10_000 + 1000 * number
    ask(store, ids(range(start, start + n_tokens)), marks=(20, 60))


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("specs", [(ATTENTION,), (ATTENTION, RECURRENT)])
def test_side_requests_do_not_evict_the_conversation(
    specs: tuple[LayerSpec, ...], turns: int
) -> None:
    """However many there are, also before the conversation's second turn."""
    _, store = make(*specs, n_pages=32, n_snapshots=6)
    conversation = ids(range(900))
    for turn in range(turns):
        conversation = np.concatenate([conversation, ids(range(turn * 50, turn * 50 + 50))])
        ask(store, conversation, marks=(600, len(conversation) - 5))
    for number in range(60):
        side_request(store, number)
    n_reused, _ = ask(store, np.concatenate([conversation, ids(1, 2, 3)]))
    # A state shortly behind another one is given up: little has to be computed again.
    assert n_reused >= len(conversation) - (60 if len(specs) == 2 else 0)
    assert ask(store, ids(range(700), 5, 6))[0] == (700 if len(specs) == 1 else 600)


@pytest.mark.parametrize("n_snapshots", [4, 8])
def test_turns_whose_answers_come_back_changed(n_snapshots: int) -> None:
    """As where the template leaves the thinking out: each turn leaves a dead end behind."""
    _, store = make(ATTENTION, RECURRENT, n_pages=64, n_snapshots=n_snapshots)
    prompt = ids(range(800))
    for turn in range(20):
        n_before = len(prompt) if turn else 0
        if turn:
            prompt = np.concatenate([prompt, ids(range(30)), ids(turn, turn, turn)])
        timeline, n_reused, *_ = store.find(prompt)
        assert n_reused >= n_before - (3 if n_snapshots == 8 else 100), f"turn {turn}"
        run(store, timeline, prompt, marks=(700, len(prompt) - 2))
        side_request(store, 2 * turn)
        run(store, timeline, np.concatenate([prompt, ids(range(500, 520))]))  # thinks, answers
        store.keep(timeline)
        side_request(store, 2 * turn + 1)
    assert ask(store, ids(range(750), 5))[0] == 700


def test_two_clients_take_turns() -> None:
    _, store = make(ATTENTION, n_pages=40)
    chats = [ids(range(start, start + 800)) for start in (0, 2000)]
    for turn in range(5):
        for i in range(2):
            if turn:
                chats[i] = np.concatenate([chats[i], ids(range(40))])
            assert ask(store, chats[i])[0] == (len(chats[i]) - 40 if turn else 0)
            side_request(store, 2 * turn + i)


def test_conversations_that_ended_make_room_for_new_ones() -> None:
    """Their privilege goes when what was evicted for their sake is asked for again."""
    _, store = make(ATTENTION, n_pages=32)
    for start in (0, 2000, 4000, 6000):
        for n in (400, 450):  # continued once, and never again
            ask(store, ids(range(start, start + n)))
    reused = []
    chats = [ids(range(start, start + 500)) for start in (20_000, 30_000)]
    for _ in range(6):
        for i in range(2):
            reused += [ask(store, chats[i])[0] / len(chats[i])]
            chats[i] = np.concatenate([chats[i], ids(range(10))])
    assert min(reused[-4:]) > 0.9


def test_what_was_evicted_is_said_so() -> None:
    _, store = make(ATTENTION, n_pages=4)
    ask(store, ids(range(200)))
    ask(store, ids(range(1000, 1200)))
    found = store.find(ids(range(200)))
    assert (found.cause, found.n_reused, store.n_evicted) == ("evicted", 0, 1)
    assert found.reason == "199 tokens of it had been given up for others"


def test_random_requests_leave_nothing_behind() -> None:
    """Whatever was asked: reuse is right (`ask` checks), limits hold, and all comes back."""
    rng = np.random.default_rng(5)
    for specs in ((ATTENTION,), (ATTENTION, RECURRENT)):
        cache, store = make(*specs, n_pages=12, n_snapshots=5)
        running: list[tuple[Timeline, np.ndarray]] = []
        for _ in range(300):
            tokens = rng.integers(0, 2, rng.integers(1, 90)).astype(np.int32)
            tokens[: len(tokens) // 2] = 0
            if len(running) == 3:
                timeline, rest = running.pop(int(rng.integers(3)))
                run(store, timeline, rest)
                store.keep(timeline)
            elif rng.random() < 0.5:
                timeline = store.find(tokens).timeline
                run(store, timeline, tokens[:-1], marks=tuple(rng.integers(1, 90, 4).tolist()))
                running.append((timeline, tokens))
            else:
                ask(store, tokens, marks=tuple(rng.integers(1, 90, 3).tolist()))
            assert len(cache.snapshot_slots) <= 5
        for timeline, _ in running:
            store.keep(timeline)
        store.clear()
        assert cache.pages.n_free == 12
        assert cache.slots.n_free == (9 if cache.recurrent else 0)
        assert cache.snapshot_slots == set()
