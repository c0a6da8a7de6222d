"""The expert pool: what must hold after every token, on made-up and on hostile routing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.experts.heat import heat_path, load_heat, merged, save_heat
from octavo.experts.pool import Admission, ExpertPool, Rules, run
from octavo.experts.trace import Locality, make_trace
from octavo.settings import Settings

SLOT = 1_769_472


def owners(pool: ExpertPool) -> dict[int, tuple[int, int]]:
    """Slot -> (block, expert) of everything that is there."""
    found: dict[int, tuple[int, int]] = {}
    for block, expert in np.argwhere(pool.slot_of >= 0).tolist():
        slot = int(pool.slot_of[block, expert])
        assert slot not in found, "two experts in one slot"
        assert slot < pool.n_slots
        found[slot] = block, expert
    return found


def settle(pool: ExpertPool, admissions: list[Admission]) -> None:
    for admission in admissions:
        pool.arrived(admission)


@st.composite
def games(draw: st.DrawFn) -> tuple[ExpertPool, np.ndarray, list[int]]:
    """A pool, routing for it, and after how many tokens each copy arrives."""
    n_blocks, n_experts = draw(st.integers(1, 4)), draw(st.integers(2, 12))
    n_used = draw(st.integers(1, n_experts))
    floor = draw(st.integers(0, n_experts))
    n_slots = draw(st.integers(floor * n_blocks, n_blocks * n_experts + 3))
    rules = Rules(
        most_per_block=draw(st.integers(0, 3)),
        most_bytes=draw(st.integers(0, 5)) * SLOT + SLOT // 2,
        touch_tokens=draw(st.integers(1, 8)),
        slow_half_life=draw(st.floats(1, 100)),
        fast_weight=draw(st.floats(0, 10)),
    )
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    n_tokens = draw(st.integers(1, 30))
    trace = np.argsort(random.random((n_tokens, n_blocks, n_experts)), axis=2)[:, :, :n_used]
    delays = draw(st.lists(st.integers(0, 5), min_size=1, max_size=10))
    pool = ExpertPool(n_blocks, n_experts, n_slots, SLOT, floor=floor, rules=rules)
    return pool, trace.astype(np.int32), delays


@settings(max_examples=100)
@given(game=games(), is_seeded=st.booleans(), new_size=st.none() | st.integers(0, 60))
def test_what_holds_after_every_token(
    game: tuple[ExpertPool, np.ndarray, list[int]], is_seeded: bool, new_size: int | None
) -> None:
    pool, trace, delays = game
    rules, n_blocks = pool.rules, len(pool.slot_of)
    if is_seeded:
        settle(pool, pool.seed())
    arriving: list[tuple[int, Admission]] = []
    for t, used in enumerate(trace):
        before = owners(pool)
        admissions = pool.advance(used)
        # Bounds.
        assert len(admissions) * SLOT <= rules.most_bytes
        per_block = np.bincount([a.block for a in admissions], minlength=n_blocks)
        assert (per_block <= rules.most_per_block).all()
        assert len({a.slot for a in admissions}) == len(admissions)
        for a in admissions:
            assert a.expert in used[a.block], "brought without being asked for"
            assert before.get(a.slot) == a.leaves
            assert a.leaves is None or a.leaves[1] not in used[a.leaves[0]], "was just used"
            assert pool.slot_of[a.block, a.expert] == -1, "there before its copy is done"
            assert (a.block, a.expert) not in before.values()
        after = owners(pool)
        assert set(before) - set(after) == {a.slot for a in admissions if a.leaves}
        # No block falls below the floor for the sake of another one, who is coming counted.
        lost = np.bincount([a.leaves[0] for a in admissions if a.leaves], minlength=n_blocks)
        own = np.bincount(
            [a.block for a in admissions if a.leaves and a.leaves[0] == a.block],
            minlength=n_blocks,
        )
        holders = [b for b, _ in after.values()] + [a.block for a in pool._coming.values()]
        kept = np.bincount(holders, minlength=n_blocks)
        assert ((lost == own) | (kept >= pool.floor)).all()
        arriving += [(t + delays[t % len(delays)], a) for a in admissions]
        settle(pool, [a for when, a in arriving if when <= t])
        arriving = [(when, a) for when, a in arriving if when > t]
        if new_size is not None and t == len(trace) // 2:
            pool.resize(max(new_size, pool.floor * n_blocks))
    owners(pool)
    assert pool.n_coming <= len(arriving)


def play(seed: int) -> tuple[list[list[Admission]], np.ndarray]:
    trace = make_trace(80, 5, 64, 4, seed=seed)
    pool = ExpertPool(5, 64, 60, SLOT, floor=8)
    settle(pool, pool.seed())
    steps = []
    for used in trace:
        steps.append(pool.advance(used))
        settle(pool, steps[-1])
    return steps, pool.slot_of


def test_the_same_routing_gives_the_same_pool() -> None:
    first, second = play(3), play(3)
    assert first[0] == second[0]
    assert any(first[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert play(4)[0] != first[0]


def test_the_order_within_a_token_does_not_matter() -> None:
    trace = make_trace(60, 3, 32, 4)
    pools = [ExpertPool(3, 32, 30, SLOT) for _ in range(2)]
    for used in trace:
        steps = [pool.advance(u) for pool, u in zip(pools, (used, used[:, ::-1]), strict=True)]
        assert steps[0] == steps[1]
        for pool, admissions in zip(pools, steps, strict=True):
            settle(pool, admissions)


def ids(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, np.int32)


def test_an_expert_comes_when_it_is_asked_for_again() -> None:
    pool = ExpertPool(1, 8, 4, SLOT, rules=Rules(touch_tokens=3))
    assert pool.advance(ids((5,))) == []
    assert [a.expert for a in pool.advance(ids((5,)))] == [5]
    assert pool.advance(ids((5,))) == []  # it is coming already
    assert pool.advance(ids((6,))) == []
    for _ in range(3):
        pool.advance(ids((0,)))
    assert pool.advance(ids((6,))) == []  # four tokens ago is too long
    assert [a.expert for a in pool.advance(ids((6,)))] == [6]


def test_one_is_there_when_its_copy_is_done() -> None:
    pool = ExpertPool(1, 4, 1, SLOT)
    pool.advance(ids((2,)))
    (admission,) = pool.advance(ids((2,)))
    assert not pool.hits(ids((2,))).any()
    assert pool.n_coming == 1
    pool.arrived(admission)
    assert pool.hits(ids((2,))).all()
    assert pool.slot_of[0].tolist() == [-1, -1, 0, -1]


def test_the_more_wanted_stays() -> None:
    pool = ExpertPool(1, 4, 1, SLOT)
    for _ in range(9):
        settle(pool, pool.advance(ids((2,))))
    settle(pool, [a for used in ((1,), (1,)) for a in pool.advance(ids(used))])
    assert pool.slot_of[0, 2] == 0, "twice lately does not outweigh nine times"
    for _ in range(9):
        settle(pool, pool.advance(ids((1,))))
    assert pool.slot_of[0, 1] == 0


def test_a_copy_into_a_slot_that_is_gone_is_forgotten() -> None:
    pool = ExpertPool(1, 4, 2, SLOT)
    pool.advance(ids((0, 1)))
    admissions = pool.advance(ids((0, 1)))
    assert len(admissions) == 2
    pool.resize(1)
    settle(pool, admissions)
    assert list(owners(pool).values()) == [(0, 0)]
    pool.resize(3)
    assert pool.n_slots == 3
    with pytest.raises(ValueError, match="below the floor"):
        ExpertPool(2, 4, 6, SLOT, floor=3).resize(5)


def test_floors_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="15 slots cannot keep 8"):
        ExpertPool(2, 16, 15, SLOT, floor=8)


@pytest.mark.parametrize(("floor", "left"), [(2, 2), (1, 1)])
def test_a_block_keeps_its_floor_against_a_busier_one(floor: int, left: int) -> None:
    """One block wants three experts at every token, the other always the same one."""
    pool = ExpertPool(2, 6, 4, SLOT, floor=floor)
    settle(pool, pool.seed())
    for _ in range(40):
        settle(pool, pool.advance(ids((3, 4, 5), (0, 0, 0))))
    there = (pool.slot_of >= 0).sum(axis=1).tolist()
    assert there == [4 - left, left]
    assert pool.slot_of[1, 0] >= 0


def test_a_seed_fills_the_pool_floors_first() -> None:
    heat = np.zeros((3, 10), np.float32)
    heat[0] = np.arange(10)  # one block is hotter than all others
    pool = ExpertPool(3, 10, 12, SLOT, floor=2)
    settle(pool, pool.seed(heat))
    here = owners(pool)
    assert len(here) == 12
    counts = np.bincount([b for b, _ in here.values()])
    assert counts.tolist() == [8, 2, 2]
    assert {e for b, e in here.values() if b == 0} == set(range(2, 10))
    even = ExpertPool(3, 10, 12, SLOT, floor=2)
    settle(even, even.seed())
    assert np.bincount([b for b, _ in owners(even).values()]).tolist() == [4, 4, 4]


def test_heat_of_an_earlier_run_helps_the_next_one() -> None:
    locality = Locality(drift_tokens=1e6, taste=1.5)
    trace = make_trace(400, 4, 64, 4, locality=locality)
    cold = ExpertPool(4, 64, 64, SLOT)
    settle(cold, cold.seed())
    run(cold, trace[:350])
    hits = {}
    for name, heat in (("cold", None), ("warm", cold.heat())):
        pool = ExpertPool(4, 64, 64, SLOT)
        settle(pool, pool.seed(heat))
        hits[name] = run(pool, trace[350:355])[0].mean()
    assert hits["warm"] > 1.3 * hits["cold"]


def test_a_prompt_warms_the_counts() -> None:
    pool = ExpertPool(1, 4, 1, SLOT)
    settle(pool, pool.seed())
    assert pool.slot_of[0, 0] == 0
    pool.warm(np.array([[9, 0, 0, 0]]))
    for _ in range(3):
        settle(pool, pool.advance(ids((1,))))
    assert pool.slot_of[0, 0] == 0, "the prompt's expert is worth more"


# Heat files


def test_heat_survives(tmp_path: Path) -> None:
    heat = np.random.default_rng(0).random((7, 33)).astype(np.float32)
    path = heat_path(Settings.from_environment(), "0123abcd")
    assert load_heat(path, 7, 33) is None
    save_heat(path, heat)
    found = load_heat(path, 7, 33)
    assert found is not None
    np.testing.assert_array_equal(found, heat)
    assert [p.name for p in path.parent.iterdir()] == ["0123abcd.heat"]
    np.testing.assert_array_equal(merged(None, heat), heat)
    np.testing.assert_allclose(merged(heat, 3 * heat), 2 * heat, rtol=1e-6)


@pytest.mark.parametrize("position", [0, 8, 12, 17, 20, 24, 100, -1])
def test_a_damaged_heat_file_is_none(position: int, tmp_path: Path) -> None:
    path = tmp_path / "m.heat"
    save_heat(path, np.ones((7, 33), np.float32))
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1
    path.write_bytes(raw)
    assert load_heat(path, 7, 33) is None


def test_a_heat_file_of_another_size_is_none(tmp_path: Path) -> None:
    path = tmp_path / "m.heat"
    save_heat(path, np.ones((7, 33), np.float32))
    assert load_heat(path, 33, 7) is None
    whole = path.read_bytes()
    for raw in (whole[:-1], whole + b"\0", b"", whole[:10]):
        path.write_bytes(raw)
        assert load_heat(path, 7, 33) is None
    save_heat(path, np.full((7, 33), np.nan, np.float32))
    assert load_heat(path, 7, 33) is None


# The trace


@pytest.fixture(scope="module")
def trace() -> np.ndarray:
    return make_trace(1200, 5)


def test_the_trace_is_routing(trace: np.ndarray) -> None:
    assert trace.shape == (1200, 5, 8)
    assert trace.dtype == np.int32
    assert trace.min() >= 0
    assert trace.max() < 256
    ordered = np.sort(trace, axis=2)
    assert (np.diff(ordered, axis=2) > 0).all()
    np.testing.assert_array_equal(make_trace(30, 5), make_trace(30, 5))
    assert (make_trace(30, 5) != make_trace(30, 5, seed=1)).any()


def test_the_trace_has_the_published_locality(trace: np.ndarray) -> None:
    """45 % are used again by the next token, 80 % within eight; the median distance is 2."""
    last = np.full((5, 256), -(1 << 20))
    rows = np.arange(5)[:, None]
    distances = []
    for t, used in enumerate(trace):
        distances.append(t - last[rows, used])
        last[rows, used] = t
    found = np.array(distances[200:])
    assert (found == 1).mean() == pytest.approx(0.45, abs=0.03)
    assert (found <= 8).mean() == pytest.approx(0.80, abs=0.03)
    assert np.median(found) == 2


@pytest.mark.parametrize(("share", "expected"), [(0.066, 0.41), (0.33, 0.81)])
def test_pools_find_the_published_share(trace: np.ndarray, share: float, expected: float) -> None:
    """With a slowly fading count, as those who published these figures had."""
    rules = Rules(slow_half_life=256.0)
    pool = ExpertPool(5, 256, int(share * 256 * 5), SLOT, floor=16, rules=rules)
    settle(pool, pool.seed())
    hits, _ = run(pool, trace)
    assert hits[600:].mean() / 40 == pytest.approx(expected, abs=0.04)


def test_the_default_rules_beat_a_static_choice(trace: np.ndarray) -> None:
    """And cost no more than they may."""
    rules = Rules(most_bytes=4 * SLOT)
    pool = ExpertPool(5, 256, 51 * 5, SLOT, floor=16, rules=rules)
    settle(pool, pool.seed())
    hits, brought = run(pool, trace)
    counts = np.stack([np.bincount(trace[:600, b].ravel(), minlength=256) for b in range(5)])
    kept = np.argsort(-counts, axis=1)[:, :51]
    static = np.mean([np.isin(trace[600:, b], kept[b]).mean() for b in range(5)])
    assert hits[600:].mean() / 40 > static + 0.2
    assert brought.max() <= 4
