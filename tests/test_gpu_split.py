"""Experts in two places: the same sums whoever sits on the card, in short and in long steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from gpu_backend import IS_INTERPRETED, gpu, nmse, to_device, to_host, torch
from octavo import quants
from octavo.errors import OctavoError, UnsupportedError
from octavo.ops import reference
from octavo.ops.gpu import handoff, lanes, ring, split
from octavo.ops.gpu.experts import SPLIT, on_device, weighted_sum
from octavo.ops.gpu.split import Split
from octavo.ops.weight import ExpertBank, Weight

N_EXPERTS, N_USED, WIDTH, HIDDEN = 8, 3, 64, 32
RESIDENT = {
    "none": [],
    "some": [6, 0, 3],
    "a block": [1, 2, 3, 4],
    "all": list(range(N_EXPERTS)),
}


def make_bank(rng: np.random.Generator, fused: bool = False) -> ExpertBank:
    def weight(name: str, rows: int, columns: int) -> Weight:
        shape = N_EXPERTS, rows, columns
        data = quants.random_blocks(name, np.prod(shape) // 32, rng, columns**-0.5)
        return Weight(name, name, shape, data.reshape(-1), gpu)

    gate = weight("q8_0", HIDDEN * (2 if fused else 1), WIDTH)
    up = None if fused else weight("q5_1", HIDDEN, WIDTH)
    return ExpertBank(gate, up, weight("q4_0", WIDTH, HIDDEN), "silu", gpu)


def make_split(banks: list[ExpertBank], n_slots: int = N_EXPERTS, n_ring: int = 4) -> Split:
    slot_bytes = Split(banks, 0, 0).slot_bytes
    return Split(banks, n_slots * slot_bytes, n_ring * slot_bytes)


def settle(made: Split, experts: list[int], block: int = 0) -> None:
    """Let these sit on the card, the first in the last slot."""
    slots = np.full_like(made.slots, -1)
    for slot, expert in enumerate(reversed(experts)):
        made.bring(block, expert, slot).wait()  # type: ignore[attr-defined]
        slots[block, expert] = slot
    made.publish(slots)


Given = tuple[np.ndarray, np.ndarray, np.ndarray]


def tokens(n: int, rng: np.random.Generator) -> Given:
    """x, ids, weights."""
    ids = np.stack([rng.permutation(N_EXPERTS)[:N_USED] for _ in range(n)]).astype(np.int32)
    x = rng.standard_normal((n, WIDTH), np.float32)
    return x, ids, rng.random((n, N_USED), np.float32)


def on_card(given: Given) -> tuple[Any, ...]:
    return tuple(to_device(a) for a in given)


@pytest.mark.parametrize("resident", RESIDENT)
@pytest.mark.parametrize(("n", "fused"), [(1, False), (3, True), (12, False)])
def test_few_tokens(n: int, fused: bool, resident: str, rng: np.random.Generator) -> None:
    bank, given = make_bank(rng, fused), tokens(n, rng)
    made, beside = make_split([bank]), to_device(rng.random((n, WIDTH), np.float32))
    settle(made, RESIDENT[resident])
    found = gpu.experts(*on_card(given)[:1], bank, *on_card(given)[1:], lambda: beside)
    expected = reference.experts(given[0], bank, *given[1:]) + to_host(beside)
    assert nmse(found, expected) < 1e-3  # the processor rounds activations to int8
    if resident == "all":
        assert nmse(found, expected) < (1e-10 if n <= 8 else 1e-5)
    np.testing.assert_array_equal(made.asked()[0], given[1])
    assert made.asked() == {}


@pytest.mark.parametrize("resident", RESIDENT)
@pytest.mark.parametrize("fused", [False, True])
def test_many_tokens(fused: bool, resident: str, rng: np.random.Generator) -> None:
    bank, given = make_bank(rng, fused), tokens(40, rng)
    x, ids, weights = on_card(given)
    whole = weighted_sum(x, on_device(bank), ids, weights)
    made = make_split([bank])
    settle(made, RESIDENT[resident])
    for _ in range(2):  # the ring goes on where it was
        np.testing.assert_array_equal(to_host(gpu.experts(x, bank, ids, weights)), to_host(whole))
    np.testing.assert_array_equal(made.asked()[0], given[1])
    beside = to_device(rng.random((40, WIDTH), np.float32))
    found = gpu.experts(x, bank, ids, weights, lambda: beside)
    np.testing.assert_array_equal(to_host(found), to_host(whole) + to_host(beside))


class LateMark:
    """Passed as late as may be: when somebody waits for it. Until then nothing was copied."""

    def __init__(self) -> None:
        self.before: list[Callable[[], None]] = []

    def set(self) -> None:
        self.before = []

    def hold(self) -> None:
        while self.before:
            self.before.pop(0)()


class LateLane:
    def __init__(self) -> None:
        self._queue: list[Callable[[], None]] = []
        self.held: list[object] = []

    def hold(self, mark: object) -> None:
        self.held.append(mark)

    def copy(self, copies: list[tuple[Any, Any]]) -> None:
        self._queue += [lambda t=t, s=s: t.copy_(s) for t, s in copies]

    def set(self, mark: LateMark) -> None:
        mark.before, self._queue = self._queue, []


@pytest.mark.skipif(not IS_INTERPRETED, reason="copies are held back by hand")
def test_groups_are_waited_for(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, given = make_bank(rng), tokens(40, rng)
    x, ids, weights = on_card(given)
    whole = to_host(weighted_sum(x, on_device(bank), ids, weights))
    monkeypatch.setattr(ring, "Lane", LateLane)
    monkeypatch.setattr(ring, "Mark", LateMark)
    made = make_split([bank])
    settle(made, [2])
    np.testing.assert_array_equal(to_host(gpu.experts(x, bank, ids, weights)), whole)
    # Each buffer was asked to be free before it was filled: 7 experts in groups of 2.
    held = made._ring._lane.held  # type: ignore[attr-defined]
    assert held == [made._ring._used[i % 2] for i in range(4)]


def test_runs_of_experts_are_one_copy(rng: np.random.Generator) -> None:
    bank = make_bank(rng)
    made, sent = make_split([bank], n_ring=16), []
    settle(made, [3])
    made._ring.send = lambda copies: sent.append([(at, len(s)) for at, s in copies]) or 0  # type: ignore
    (group,) = made._groups(0)
    made._send(0, group)
    gate = [len(w.data) // N_EXPERTS for w in (bank.gate, bank.up, bank.down)]
    assert [n for _, n in sent[0]] == [k * size for size in gate for k in (3, 4)]


def test_formats_that_the_processor_lacks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split.cpu, "fast_formats", lambda: frozenset({"q8_0", "q5_1"}))
    with pytest.raises(UnsupportedError, match="q4_0"):
        make_split([make_bank(rng)])


def test_banks_without_a_split_are_left_alone(rng: np.random.Generator) -> None:
    first, second = make_bank(rng), make_bank(rng)
    make_split([first])
    assert SPLIT in first.memo
    assert SPLIT not in second.memo


# The captured half, with a thread for the card


class PlayedFlags(handoff.Flags):
    """Words that a thread writes and awaits where a card would."""

    def ring(self, number: int) -> None:
        pass

    def wait(self, number: int) -> None:
        pass


class Card:
    """The other side, as steps see it."""

    def __init__(self, flags: handoff.Flags) -> None:
        self.flags, self.n = flags, 0

    def ring(self, part: object) -> None:
        self.n += 1
        self.flags.bell[0] = self.n

    def wait(self) -> None:
        while self.flags.reply[0] < self.n:
            time.sleep(0)


@contextmanager
def recorded(step: Callable[[], Any]) -> Iterator[tuple[handoff.Companion, Callable[[], Any]]]:
    """What `graph.Recording` makes of a step: its companion, and the card's half to be started."""
    companion = handoff.Companion(PlayedFlags())
    with handoff.accompanied(companion):
        step()

    def play() -> Any:
        with handoff.accompanied(Card(companion.flags)):  # type: ignore[arg-type]
            return step()

    yield companion, play


@pytest.mark.skipif(not IS_INTERPRETED, reason="a thread plays the card")
def test_a_captured_step(rng: np.random.Generator) -> None:
    banks = [make_bank(rng), make_bank(rng)]
    made, given = make_split(banks), tokens(2, rng)
    settle(made, [5, 1], block=1)
    x, ids, weights = on_card(given)
    results: list[Any] = []

    def step() -> Any:
        y = gpu.experts(x, banks[0], ids, weights, lambda: x)
        return gpu.experts(y, banks[1], ids, weights)

    expected = to_host(step())  # the plain way
    with recorded(step) as (companion, play):
        for resident in [5, 1], [0, 7]:
            settle(made, resident, block=1)
            made.asked()
            companion.reset()
            thread = threading.Thread(target=lambda: results.append(to_host(play())))
            thread.start()
            companion.run()
            thread.join()
            assert nmse(results.pop(), expected) < 1e-3
            assert made.asked().keys() == {0, 1}
    settle(made, [5, 1], block=1)
    np.testing.assert_array_equal(to_host(step()), expected)


@pytest.mark.skipif(not IS_INTERPRETED, reason="the card fails by hand")
@pytest.mark.parametrize("fault", ["ended", "failed", "stands still"])
def test_a_card_that_fails_is_not_waited_for(
    fault: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_ended() -> bool:
        if fault == "failed":
            raise RuntimeError("an illegal memory access")
        return fault == "ended"

    monkeypatch.setattr(handoff, "has_ended", has_ended)
    monkeypatch.setattr(handoff, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(handoff, "MOST_SECONDS", 0.05)
    bank = make_bank(rng)
    made, (x, ids, weights) = make_split([bank]), on_card(tokens(1, rng))
    with recorded(lambda: gpu.experts(x, bank, ids, weights)) as (companion, _):
        companion.reset()
        with pytest.raises(OctavoError, match=f"{fault}.*layer 1 of 1|illegal memory"):
            companion.run()
        assert companion.flags.reply[0] == 0x7FFFFFFF  # the card may go on
        assert made.asked() == {}


@pytest.mark.skipif(IS_INTERPRETED, reason="needs a device")
def test_a_recorded_step_on_a_device(rng: np.random.Generator) -> None:
    banks = [make_bank(rng), make_bank(rng)]
    made, (x, ids, weights) = make_split(banks), on_card(tokens(2, rng))

    def step() -> Any:
        y = gpu.experts(x, banks[0], ids, weights, lambda: x)
        return gpu.fetch(gpu.experts(y, banks[1], ids, weights))

    recording = gpu.capture(step)
    expected = recording.result.copy()
    for resident in [], [5, 1], [0, 7]:
        settle(made, resident, block=1)
        recording.replay()
        assert nmse(recording.result, expected) < 1e-3


def test_marks_of_the_interpreter_are_passed() -> None:
    mark, lane = lanes.Mark(), lanes.Lane()
    target = to_device(np.zeros(3, np.uint8))
    lane.hold(mark)
    lane.copy([(target, torch.arange(3, dtype=torch.uint8))])
    lane.set(mark)
    mark.wait()
    assert mark.is_passed()
    assert to_host(target).tolist() == [0, 1, 2]
    assert isinstance(lanes.has_ended(), bool)
