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
from octavo.engine.steps import MAX_STEP_TOKENS
from octavo.errors import OctavoError, UnsupportedError
from octavo.experts.residents import PROMPT_TOKENS
from octavo.gguf.header import TensorInfo
from octavo.ops import reference
from octavo.ops.gpu import convoy, handoff, lanes, link, pinning, ring, split
from octavo.ops.gpu.experts import SPLIT, on_device, weighted_sum
from octavo.ops.gpu.pace import ALL_BY_LINK, Pace, solve, take_few
from octavo.ops.gpu.split import HOST_TOKENS, Split
from octavo.ops.weight import ExpertBank, Weight
from octavo.plan import memory

N_EXPERTS, N_USED, WIDTH, HIDDEN = 6, 2, 64, 32
MANY = 9  # tokens of a long step here: for the interpreter as few as the kernels of many take
LAZY, EAGER = ALL_BY_LINK, Pace(1.0, 0.0, 0.0)  # the processor against the link
RESIDENT = {
    "none": [],
    "some": [5, 0, 3],
    "all": list(range(N_EXPERTS)),
}


@pytest.fixture(autouse=True)
def long_steps_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "HOST_TOKENS", MANY - 1)


def make_bank(rng: np.random.Generator, fused: bool = False) -> ExpertBank:
    def weight(name: str, rows: int, columns: int) -> Weight:
        shape = N_EXPERTS, rows, columns
        data = quants.random_blocks(name, np.prod(shape) // 32, rng, columns**-0.5)
        return Weight(name, name, shape, data.reshape(-1), gpu)

    gate = weight("q8_0", HIDDEN * (2 if fused else 1), WIDTH)
    up = None if fused else weight("q5_1", HIDDEN, WIDTH)
    return ExpertBank(gate, up, weight("q4_0", WIDTH, HIDDEN), "silu", gpu)


def make_split(banks: list[ExpertBank], n_slots: int = N_EXPERTS, n_ring: int = 4) -> Split:
    """In steps of many tokens the processor takes nothing, unless the test says otherwise."""
    slot_bytes = Split(banks, 0).slot_bytes
    made = Split(banks, n_ring * slot_bytes)
    made.make_pool(n_slots * slot_bytes)
    made.pace = LAZY
    return made


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
@pytest.mark.parametrize(("n", "fused"), [(1, False), (3, True)])
def test_few_tokens(n: int, fused: bool, resident: str, rng: np.random.Generator) -> None:
    bank, given = make_bank(rng, fused), tokens(n, rng)
    made, beside = make_split([bank]), to_device(rng.random((n, WIDTH), np.float32))
    settle(made, RESIDENT[resident])
    found = gpu.experts(*on_card(given)[:1], bank, *on_card(given)[1:], lambda: beside)
    expected = reference.experts(given[0], bank, *given[1:]) + to_host(beside)
    assert nmse(found, expected) < 1e-3  # the processor rounds activations to int8
    if resident == "all":
        assert nmse(found, expected) < 1e-10
    np.testing.assert_array_equal(made.asked()[0], given[1])
    assert made.asked() == {}


@pytest.mark.parametrize(("n", "fused", "shares"), [(1, False, [0, 1]), (3, True, [0, 0, 1])])
def test_some_are_read_over_the_link(
    n: int, fused: bool, shares: list[int], rng: np.random.Generator
) -> None:
    bank, given = make_bank(rng, fused), tokens(n, rng)
    given[1][0] = 5, 1
    n_bytes = sum(w.data.size for w in (bank.gate, bank.up, bank.down) if w is not None)
    made = Split([bank], 4 * n_bytes // N_EXPERTS, n_bytes)
    made.make_pool(N_EXPERTS * made.slot_bytes)
    settle(made, [5] if len(shares) == 2 else [0])
    assert made.link is not None
    found = []
    for some in [], shares:
        made.link.share(some)
        found.append(gpu.experts(*on_card(given)[:1], bank, *on_card(given)[1:]))
        desk = made._rooms[split.HOST_TOKENS].desk(n)
        # Of the first token's choice the last one is the card's.
        expected = [[-1, 1] if len(shares) == 2 else [5, 1], [-1, -1] if n == 1 else [5, -1]]
        assert desk.missed[0].tolist() == expected[bool(some)]
    assert all(nmse(f, reference.experts(given[0], bank, *given[1:])) < 1e-3 for f in found)
    assert not np.array_equal(*map(to_host, found))  # float32 there, int8 here
    np.testing.assert_array_equal(made.asked()[0], given[1])


def test_what_the_link_takes_is_measured(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    banks, given = [make_bank(rng) for _ in range(2)], tokens(1, rng)
    n_bytes = 2 * sum(w.data.size for w in (banks[0].gate, banks[0].up, banks[0].down) if w)
    made = Split(banks, 4 * n_bytes // N_EXPERTS, n_bytes)
    made.make_pool(N_EXPERTS * made.slot_bytes)
    settle(made, [5])
    monkeypatch.setattr(split, "are_captured", lambda: True)
    monkeypatch.setattr(link, "Flags", StillFlags)
    made.wait()
    made.tune()  # nobody has used it
    assert not made._is_tuned
    gpu.experts(*on_card(given)[:1], banks[0], *on_card(given)[1:])
    made._pinning._is_whole.clear()
    made.tune()  # the system refused a part: the card must not read there
    assert not made._is_tuned
    made._pinning._is_whole.set()
    ticks = iter(range(10**6))
    monkeypatch.setattr(link.time, "perf_counter", lambda: float(next(ticks)))
    made.tune()
    assert made._is_tuned
    assert made.link is not None
    assert to_host(made.link.shares)[:3].tolist() == [0, 0, 0]  # all ways take as long
    monkeypatch.setattr(made.link, "_time", lambda n_used, n, n_linked, here: 9 - n_linked)
    assert made.link.measure(8, lambda x, n: None) == [0, 0, 1, 2, 3, 4, 4, 4, 4]


class StillFlags:
    def __init__(self) -> None:
        self.reply = np.zeros(1, np.uint32)

    def reset(self) -> None:
        self.reply[0] = 0

    def wait(self, number: int) -> None:
        assert number == 1


def test_what_was_asked_for_outlives_the_next_step(rng: np.random.Generator) -> None:
    banks = [make_bank(rng), make_bank(rng)]
    made, given = make_split(banks), [tokens(1, rng), tokens(3, rng)]
    for block in 1, 0, 0:
        x, ids, weights = on_card(given[block])
        gpu.experts(x, banks[block], ids, weights)
    asked = made.asked()
    for block in 0, 1:
        np.testing.assert_array_equal(asked[block], given[block][1])


@pytest.mark.parametrize("fused", [False, True])
def test_many_tokens(fused: bool, rng: np.random.Generator) -> None:
    bank, given = make_bank(rng, fused), tokens(MANY, rng)
    x, ids, weights = on_card(given)
    whole = to_host(weighted_sum(x, on_device(bank), ids, weights))
    made, beside = make_split([bank]), to_device(rng.random((MANY, WIDTH), np.float32))
    for resident in [[4]] if fused else RESIDENT.values():
        settle(made, resident)
        found = gpu.experts(x, bank, ids, weights, lambda: beside)
        np.testing.assert_array_equal(to_host(found), whole + to_host(beside))
        np.testing.assert_array_equal(made.asked()[0], given[1])


def test_processor_and_link_share_a_step(rng: np.random.Generator) -> None:
    bank, given = make_bank(rng), tokens(MANY, rng)
    given[1][:] = [rng.permutation([0, 1, 2, 3, 5])[:N_USED] for _ in range(MANY)]  # nobody's: 4
    given[1][0] = 3, 5
    expected = reference.experts(given[0], bank, *given[1:])
    made, sent = make_split([bank], n_ring=2), []
    settle(made, [1])
    send = made._convoy.send
    made._convoy.send = lambda block, group: sent.append(group.tolist()) or send(block, group)  # type: ignore
    for pace, late in (LAZY, [[3], [5]]), (EAGER, []):
        made.pace = pace
        sent.clear()
        found = gpu.experts(*on_card(given)[:1], bank, *on_card(given)[1:])
        assert nmse(found, expected) < 1e-3
        assert sent == [[0], [2], *late]
    made.pace = None
    assert made._pace_at(0).link >= 0  # measured, whatever it is
    assert made._pace_at(0) is made._pace_at(0)


def test_a_block_begins_to_come_while_the_one_before_is_left(rng: np.random.Generator) -> None:
    banks = [make_bank(rng), make_bank(rng)]
    made, (x, ids, weights) = make_split(banks), on_card(tokens(MANY, rng))
    whole = [to_host(weighted_sum(x, on_device(bank), ids, weights)) for bank in banks]
    log: list[int] = []
    send = made._convoy.send
    made._convoy.send = lambda block, group: log.append(block) or send(block, group)  # type: ignore

    def sent_by(block: int) -> list[int]:
        log.clear()
        found = to_host(gpu.experts(x, banks[block], ids, weights))
        np.testing.assert_array_equal(found, whole[block])
        return log.copy()

    assert sent_by(0) == [0] * 3  # six experts in groups of two; what follows is not known yet
    assert sent_by(1) == [1] * 3
    assert sent_by(0) == [0] * 3 + [1] * 2
    assert sent_by(1) == [1]
    assert sent_by(0) == [0] * 3 + [1] * 2
    settle(made, [0, 3], block=1)  # what was sent is of another table
    assert sent_by(1) == [1] * 2
    assert sent_by(0) == [0] * 3 + [1] * 2
    gpu.experts(x[:1], banks[1], ids[:1], weights[:1])  # as the last block of a prompt does
    assert sent_by(0) == [0] * 3


def test_who_has_the_fewest_tokens_is_computed_by_the_processor() -> None:
    counts = np.array([9, 0, 2, 5, 1])
    found = {n: take_few(counts, n, Pace(1.0, 1.0, 0.1)).tolist() for n in (0, 2, 9)}
    assert found == {0: [4], 2: [4, 2], 9: [4, 2, 3, 0]}
    assert take_few(counts, 0, LAZY).tolist() == []
    assert take_few(counts * 0, 5, EAGER).tolist() == []
    assert solve((10, 10, 0.02), (10, 80, 0.09)) == pytest.approx((0.001, 0.001))
    assert solve((10, 10, 0.02), (10, 80, 0.01)) == pytest.approx((0.002, 0.0))


class LateMark:
    """Passed as late as may be: when somebody waits for it. Until then nothing was copied."""

    def __init__(self) -> None:
        self.before: list[Callable[[], None]] = []

    def set(self) -> None:
        self.before = []

    def hold(self) -> None:
        while self.before:
            self.before.pop(0)()

    def is_passed(self) -> bool:
        return not self.before


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
    bank, given = make_bank(rng), tokens(MANY, rng)
    x, ids, weights = on_card(given)
    whole = to_host(weighted_sum(x, on_device(bank), ids, weights))
    monkeypatch.setattr(ring, "Lane", LateLane)
    monkeypatch.setattr(ring, "Mark", LateMark)
    made = make_split([bank])
    settle(made, [2])
    np.testing.assert_array_equal(to_host(gpu.experts(x, bank, ids, weights)), whole)
    # Each buffer was asked to be free before it was filled: 5 experts in groups of 2.
    held = made._convoy._ring._lane.held  # type: ignore[attr-defined]
    assert held == [made._convoy._ring._used[i % 2] for i in range(3)]


def test_a_rehearsal_brings_nothing(rng: np.random.Generator) -> None:
    bank, given = make_bank(rng), tokens(MANY, rng)
    made = make_split([bank])
    with made.rehearsing():
        found = gpu.experts(*on_card(given)[:1], bank, *on_card(given)[1:])
    assert not made.asked()
    assert not to_host(found).any()  # of weights that are zeros


def test_runs_of_experts_are_one_copy(rng: np.random.Generator) -> None:
    bank = make_bank(rng)
    made, sent = make_split([bank], n_ring=16), []
    made._convoy._ring.send = lambda copies: sent.append([len(s) for _, s in copies]) or 0  # type: ignore
    made._convoy.send(0, np.array([0, 1, 2, 4, 5]))
    sizes = [len(w.data) // N_EXPERTS for w in (bank.gate, bank.up, bank.down)]
    assert sent == [[k * size for size in sizes for k in (3, 2)]]


def test_formats_that_the_processor_lacks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split.cpu, "fast_formats", lambda: frozenset({"q8_0", "q5_1"}))
    with pytest.raises(UnsupportedError, match="q4_0"):
        make_split([make_bank(rng)])


def test_the_plan_counts_on_the_same_numbers(rng: np.random.Generator) -> None:
    assert memory.SHARED_TOKENS == split.SHARED_TOKENS
    assert memory.RING_EXPERTS == 4 * convoy.GROUP_EXPERTS
    assert HOST_TOKENS >= MAX_STEP_TOKENS, "a recorded step cannot bring experts"
    assert HOST_TOKENS == PROMPT_TOKENS
    bank = make_bank(rng)
    tensors = [
        TensorInfo(f"blk.0.ffn_{part}_exps.weight", w.shape, 0, w.format, len(w.data), 0, 0)
        for part, w in (("down", bank.down), ("gate", bank.gate), ("up", bank.up))
    ]
    assert memory.expert_slot_bytes(tensors, N_EXPERTS) == Split([bank], 0).slot_bytes


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
        for resident in [5, 1], [0, 3]:
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
@pytest.mark.parametrize("fault", ["ended", "failed", "stood still"])
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
    for resident in [], [5, 1], [0, 3]:
        settle(made, resident, block=1)
        recording.replay()
        assert nmse(recording.result, expected) < 1e-3


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [((5, 3, 4), 12, 12), ((5, 3, 4), 11, 8), ((5, 3, 4), 0, 0), ((5, 7, 4), 100, 5)],
)
def test_memory_is_pinned_in_order_as_far_as_it_goes(
    sizes: tuple[int, ...], most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpinned: list[int] = []

    def pin(array: np.ndarray, pinned: list[np.ndarray]) -> bool:
        if len(array) != 7:  # of which the system says no
            pinned.append(array)
        return len(array) != 7

    monkeypatch.setattr(pinning, "_pin", pin)
    monkeypatch.setattr(pinning, "_unpin", lambda arrays, over: unpinned.extend(map(len, arrays)))
    made = pinning.Pinning()
    assert made.is_done
    made.pin_later([np.zeros(n, np.uint8) for n in sizes], most)
    made.wait()
    assert made.is_done
    assert made.is_whole == (expected == sum(sizes))
    assert made.n_bytes == expected
    del made
    assert sum(unpinned) == expected


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
