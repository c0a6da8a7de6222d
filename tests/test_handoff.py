"""The processor's half of a card's step: experts left out, and bells rung by a thread."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from octavo import _native, quants
from octavo.ops import cpu, reference
from octavo.ops.weight import ExpertBank, Weight

N_EXPERTS, WIDTH, HIDDEN = 6, 64, 32


def make_bank(rng: np.random.Generator) -> ExpertBank:
    def weight(rows: int, columns: int) -> Weight:
        shape = N_EXPERTS, rows, columns
        data = quants.random_blocks("q8_0", np.prod(shape) // 32, rng, columns**-0.5)
        return Weight("w", "q8_0", shape, data.reshape(-1), cpu)

    gate, up, down = weight(HIDDEN, WIDTH), weight(HIDDEN, WIDTH), weight(WIDTH, HIDDEN)
    return ExpertBank(gate, up, down, "silu", cpu)


def choose(n_tokens: int, n_used: int, rng: np.random.Generator) -> np.ndarray:
    rows = [rng.permutation(N_EXPERTS)[:n_used] for _ in range(n_tokens)]
    return np.array(rows, np.int32).reshape(n_tokens, n_used)


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    """Activations are rounded to int8 on the processor."""
    error = np.mean((found - expected) ** 2) / max(np.mean(expected**2), 1e-30)
    return bool(error < 1e-3)


@pytest.mark.parametrize("n_tokens", [1, 3, 40])
def test_pairs_without_an_expert_add_nothing(n_tokens: int, rng: np.random.Generator) -> None:
    bank, ids = make_bank(rng), choose(n_tokens, 3, rng)
    x = rng.standard_normal((n_tokens, WIDTH), np.float32)
    weights = rng.random((n_tokens, 3), np.float32)
    out = np.full((n_tokens, WIDTH), np.nan, np.float32)
    left_out = rng.random(ids.shape) < 0.5
    left_out[0] = [True, False, True]
    masked = np.where(left_out, -1, ids).astype(np.int32)
    cpu.experts_program(x, bank, masked, weights, out).run(cpu.pool())
    kept = np.where(left_out, 0, weights).astype(np.float32)
    assert close(out, reference.experts(x, bank, ids, kept))
    masked[:] = -1
    cpu.experts_program(x, bank, masked, weights, out).run(cpu.pool())
    assert not out.any()


def test_what_stays_does_not_depend_on_what_is_left_out(rng: np.random.Generator) -> None:
    bank, x = make_bank(rng), rng.standard_normal((1, WIDTH), np.float32)
    outs = []
    for ids in ([4, -1, -1, 2], [-1, 4, 2, -1]):
        out = np.empty((1, WIDTH), np.float32)
        given = np.array([ids], np.int32)
        cpu.experts_program(x, bank, given, np.ones((1, 4), np.float32), out).run(cpu.pool())
        outs.append(out)
    np.testing.assert_array_equal(*outs)


class Desk:
    """The memory that both sides see, for one shape, and the two words."""

    def __init__(self, n_tokens: int, n_used: int) -> None:
        self.x = np.zeros((n_tokens, WIDTH), np.float32)
        self.weights = np.zeros((n_tokens, n_used), np.float32)
        self.missed = np.zeros((n_tokens, n_used), np.int32)
        self.out = np.zeros((n_tokens, WIDTH), np.float32)
        self.bell, self.reply = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        self.kept: list[object] = []

    def companion(self, banks: list[ExpertBank], slots: np.ndarray) -> _native.Companion:
        made = _native.Companion(self.bell, self.reply)
        for bank, row in zip(banks, slots, strict=True):
            program = cpu.experts_program(self.x, bank, self.missed, self.weights, self.out)
            made.add(program, self.missed, len(row), self.out)
            self.kept.append(program)
        return made


def test_a_step_goes_back_and_forth(rng: np.random.Generator) -> None:
    n_layers, desk = 4, Desk(2, 3)
    banks = [make_bank(rng) for _ in range(n_layers)]
    slots = np.where(rng.random((n_layers, N_EXPERTS)) < 0.5, 7, -1).astype(np.int32)
    slots[1], slots[2] = -1, 0  # a layer of which nothing is on the card, and one of which all is
    xs = rng.standard_normal((n_layers, 2, WIDTH), np.float32)
    ids = [choose(2, 3, rng) for _ in range(n_layers)]
    weights = rng.random((n_layers, 2, 3), np.float32)
    answers: list[np.ndarray] = []

    def card() -> None:
        for i in range(n_layers):
            desk.x[:], desk.weights[:] = xs[i], weights[i]
            desk.missed[:] = np.where(slots[i][ids[i]] < 0, ids[i], -1)
            desk.bell[0] = i + 1
            while desk.reply[0] < i + 1:
                time.sleep(0)
            answers.append(desk.out.copy())

    companion = desk.companion(banks, slots)
    for _ in range(2):  # the same list again: the words were reset
        answers.clear()
        desk.bell[0] = desk.reply[0] = 0
        thread = threading.Thread(target=card)
        thread.start()
        assert companion.run(cpu.pool(), 0, 60.0) == n_layers == len(companion)
        thread.join()
        for i in range(n_layers):
            kept = np.where(slots[i][ids[i]] < 0, weights[i], 0).astype(np.float32)
            assert close(answers[i], reference.experts(xs[i], banks[i], ids[i], kept))
        assert not answers[2].any()


def test_a_card_that_does_not_ring_is_not_waited_for(rng: np.random.Generator) -> None:
    desk = Desk(1, 2)
    companion = desk.companion([make_bank(rng)] * 3, np.full((3, N_EXPERTS), -1, np.int32))
    assert companion.run(cpu.pool(), 0, 0.01) == 0
    assert desk.reply[0] == 0
    desk.bell[0] = 2
    assert companion.run(cpu.pool(), 0, 0.01) == 2
    assert desk.reply[0] == 2
    desk.bell[0] = 3
    assert companion.run(cpu.pool(), 2, 0.01) == 3


def test_what_a_broken_card_leaves_is_no_index(rng: np.random.Generator) -> None:
    desk = Desk(1, 3)
    companion = desk.companion([make_bank(rng)], np.full((1, N_EXPERTS), -1, np.int32))
    desk.missed[:] = [-5, N_EXPERTS, 1 << 30]
    desk.out[:] = np.nan
    desk.bell[0] = 1
    assert companion.run(cpu.pool(), 0, 1.0) == 1
    assert (desk.missed == -1).all()
    assert not desk.out.any()
