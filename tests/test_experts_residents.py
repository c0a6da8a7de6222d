"""Who sits on the card from step to step, on a store whose copies end when the test lets them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from octavo.experts.heat import load_heat
from octavo.experts.pool import Rules
from octavo.experts.residents import PROMPT_TOKENS, Residents
from octavo.experts.trace import make_trace

N_BLOCKS, N_EXPERTS, N_USED, N_SLOTS = 3, 16, 2, 18


class Copy:
    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.is_done = False

    def is_passed(self) -> bool:
        return self.is_done


class FakeStore:
    """Notes who lies in each slot, and fails when a table names a slot that is being written, or
    another one than that of the expert."""

    def __init__(self, n_slots: int = N_SLOTS) -> None:
        self.slot_bytes, self.n_slots = 1000, n_slots
        self.slots = np.full((N_BLOCKS, N_EXPERTS), -1, np.int32)
        self.steps: dict[int, np.ndarray] = {}
        self.copies: list[Copy] = []
        self.holds: dict[int, tuple[int, int]] = {}
        self.is_instant = False
        self.n_brought = 0

    @property
    def written(self) -> set[int]:
        return {copy.slot for copy in self.copies if not copy.is_done}

    def room_bytes(self, limit_bytes: int, free_bytes: int) -> int | None:
        return None

    def make_pool(self, n_bytes: int) -> None:
        assert n_bytes == self.n_slots * self.slot_bytes

    def rehearsing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def publish(self, slots: np.ndarray) -> None:
        self.slots = slots.copy()
        self.check()

    def check(self) -> None:
        for block, expert in np.argwhere(self.slots >= 0).tolist():
            slot = int(self.slots[block, expert])
            assert slot not in self.written, "a table names a slot that is being written"
            assert self.holds[slot] == (block, expert)

    def bring(self, block: int, expert: int, slot: int) -> Copy:
        assert slot not in self.written
        assert slot not in self.slots, "written while a table names it"
        self.holds[slot] = block, expert
        copy = Copy(slot)
        copy.is_done = self.is_instant
        self.copies.append(copy)
        self.n_brought += 1
        return copy

    def tune(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def end(self, n: int) -> None:
        for copy in [c for c in self.copies if not c.is_done][:n]:
            copy.is_done = True

    def asked(self) -> dict[int, np.ndarray]:
        steps, self.steps = self.steps, {}
        return steps


def started(store: FakeStore, **options: object) -> Residents:
    residents = Residents(store, floor=2, **options)  # type: ignore[arg-type]
    store.is_instant = True
    residents.fill()
    store.is_instant = False
    return residents


def settled(residents: Residents) -> None:
    """With what it hands to its thread."""
    residents.settle()
    residents.finish()


@pytest.mark.parametrize("speed", [0, 1, 3, 50])
def test_no_table_names_a_slot_that_is_written(speed: int) -> None:
    store = FakeStore()
    residents = started(store)
    assert (store.slots >= 0).sum() == N_SLOTS
    first = store.slots.copy()
    trace = make_trace(150, N_BLOCKS, N_EXPERTS, N_USED, seed=speed)
    for i, used in enumerate(trace):
        n_tokens = 1 + i % 3  # as drafts are checked: several tokens, the same expert twice
        rows = trace[max(0, i + 1 - n_tokens) : i + 1]
        store.steps = {b: rows[:, b] for b in range(N_BLOCKS) if b < 2 or i % 2}
        store.check()
        settled(residents)
        store.check()
        store.end(speed)
        assert len(used) == N_BLOCKS
    most = Rules().most_bytes // store.slot_bytes
    assert len(store.written) <= most
    if speed == 0:
        assert store.n_brought > N_SLOTS
        assert set(store.slots[store.slots >= 0]) <= set(first[first >= 0])
    else:
        assert (store.slots != first).any()
        assert residents.n_found / residents.n_asked > 0.4


def test_copies_under_way_count_against_the_bound() -> None:
    store = FakeStore()
    residents = started(store, rules=Rules(most_bytes=3000))
    for used in make_trace(60, N_BLOCKS, N_EXPERTS, N_USED):
        store.steps = {b: used[None, b] for b in range(N_BLOCKS)}
        settled(residents)
        assert len(store.written) <= 3


def test_prompts_bring_nothing_but_are_remembered() -> None:
    store = FakeStore(6)
    residents = started(store)
    before, n_before = store.slots.copy(), store.n_brought
    hot = [e for e in range(N_EXPERTS) if before[0, e] < 0][:N_USED]
    store.steps = {b: np.tile(np.array(hot, np.int32), (PROMPT_TOKENS + 1, 1)) for b in range(3)}
    store.steps[2] = store.steps[2][-1:]  # the last block sees the last token alone
    settled(residents)
    assert store.n_brought == n_before
    assert residents.n_asked == 0
    np.testing.assert_array_equal(store.slots, before)
    for _ in range(3):
        store.steps = {0: np.array([hot], np.int32)}
        settled(residents)
        store.end(10)
    settled(residents)
    assert (store.slots[0, hot] >= 0).all()


def test_static_residents_never_move() -> None:
    store = FakeStore()
    residents = started(store, rules=Rules(most_per_block=0))
    before = store.n_brought
    for used in make_trace(30, N_BLOCKS, N_EXPERTS, N_USED):
        store.steps = {b: used[None, b] for b in range(N_BLOCKS)}
        settled(residents)
    assert store.n_brought == before
    assert residents.n_asked == 30 * N_BLOCKS * N_USED


def test_what_was_asked_for_decides_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "a" / "model.heat"
    started(FakeStore(), heat_file=path).close()
    assert not path.exists(), "nobody asked for anything"
    store = FakeStore()
    residents = started(store, heat_file=path)
    hot = np.array([[13, 7]], np.int32)
    for _ in range(4):
        store.steps = dict.fromkeys(range(N_BLOCKS), hot)
        settled(residents)
    residents.close()
    heat = load_heat(path, N_BLOCKS, N_EXPERTS)
    assert heat is not None
    assert (heat[:, [13, 7]] == 1).all()
    again = FakeStore(6)
    started(again, heat_file=path)
    assert np.argwhere(again.slots >= 0).tolist() == [[b, e] for b in range(3) for e in (7, 13)]


def test_a_folder_that_cannot_be_written_to_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FakeStore()
    residents = started(store, heat_file=tmp_path / "file" / "model.heat")
    store.steps = {0: np.array([[1, 2]], np.int32)}
    settled(residents)
    residents.close()


def test_copies_at_the_start_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.experts.residents._FILL_SECONDS", 0.01)
    with pytest.raises(TimeoutError):
        Residents(FakeStore(), floor=2).fill()
