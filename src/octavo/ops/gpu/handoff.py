"""The tokens of a layer go to the processor and come back, while the card does its own part.

A kernel writes them into pinned memory, the processor computes the experts that the card does not
hold, and a kernel adds its result. How the two wait for each other depends on the step. A plain
one waits for a mark in the stream. A captured one rings a bell and awaits a reply (`flags`); the
processor's half of it is a list that `Companion` keeps and runs natively, right after the launch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from octavo import _native
from octavo.errors import OctavoError
from octavo.ops import cpu
from octavo.ops.gpu.device import Tensor, empty, pinned
from octavo.ops.gpu.flags import Flags
from octavo.ops.gpu.lanes import Mark, has_ended
from octavo.ops.weight import ExpertBank

PATIENCE_SECONDS = 1.0  # without a bell until the card is asked whether it has failed
MOST_SECONDS = 30.0  # without a bell until the step is given up
_BLOCK = 1024

Ids = NDArray[np.int32]
_here = threading.local()  # .companion: that of the capture going on in this thread; .n_given


@triton.jit
def _give(
    x, x_stride, ids, weights, to_x, to_ids, to_weights, width, n_used,
    BLOCK: tl.constexpr,
    USED: tl.constexpr,
):  # fmt: skip
    """A token's activations, ids and weights into memory that the processor reads."""
    token = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + token * x_stride + i, mask=i < width)
    tl.store(to_x + token * width + i, values, mask=i < width)
    if tl.program_id(0) == 0:
        pair = token * n_used + tl.arange(0, USED)
        inside = tl.arange(0, USED) < n_used
        tl.store(to_ids + pair, tl.load(ids + pair, mask=inside), mask=inside)
        tl.store(to_weights + pair, tl.load(weights + pair, mask=inside), mask=inside)


@triton.jit
def _take(here, there, beside, out, size, HAS_BESIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The card's part, then the processor's, then what was computed beside: always this order."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(here + i, mask=i < size) + tl.load(there + i, mask=i < size)
    if HAS_BESIDE:
        total += tl.load(beside + i, mask=i < size)
    tl.store(out + i, total, mask=i < size)


class Room:
    """Pinned memory for steps of up to T tokens of width D, k experts each.

    Layers share it, because a layer has taken its results before the next one gives; only the ids
    of `n_blocks` blocks are kept apart, since what was asked for is of interest after the step.
    """

    def __init__(self, n_blocks: int, n_tokens: int, width: int, n_used: int) -> None:
        self.n_blocks, self.n_tokens, self.width, self.n_used = n_blocks, n_tokens, width, n_used
        self._x = pinned(n_tokens * width, torch.float32)
        self._ids = pinned(n_blocks * n_tokens * n_used, torch.int32)
        self._weights = pinned(n_tokens * n_used, torch.float32)
        # Zeros: while a step is recorded, nobody has answered yet.
        self._out = pinned(n_tokens * width, torch.float32).zero_()
        self._missed: Ids = np.empty(n_tokens * n_used, np.int32)
        self._desks: dict[int, Desk] = {}

    def desk(self, n_tokens: int) -> Desk:
        """That of steps of so many tokens; always the same memory."""
        if n_tokens not in self._desks:
            x, pairs = n_tokens * self.width, n_tokens * self.n_used
            shape = n_tokens, self.n_used
            self._desks[n_tokens] = Desk(
                self._x[:x].view(n_tokens, -1),
                self._ids[: self.n_blocks * pairs].view(self.n_blocks, *shape),
                self._weights[:pairs].view(*shape),
                self._out[:x].view(n_tokens, -1),
                self._missed[:pairs].reshape(shape),
            )
        return self._desks[n_tokens]


@dataclass(frozen=True, eq=False)
class Desk:
    """The part of a room that steps of T tokens use."""

    x: Tensor  # (T, D) float32
    ids: Tensor  # (blocks, T, k) int32
    weights: Tensor  # (T, k) float32
    out: Tensor  # (T, D) float32: the processor's answer
    missed: Ids  # (T, k): what the processor is to compute, -1: nothing
    mark: Mark = field(default_factory=Mark)


@dataclass
class Spent:
    """Where the time of steps went, as the processor sees it."""

    waiting_seconds: float = 0.0  # for the card to come to the layers
    computing_seconds: float = 0.0
    n_experts: int = 0  # that were computed, once for each token

    def add(self, other: Spent) -> None:
        self.waiting_seconds += other.waiting_seconds
        self.computing_seconds += other.computing_seconds
        self.n_experts += other.n_experts


@dataclass(frozen=True, eq=False)
class Part:
    """What the processor does for one layer: the experts of `bank` without a slot."""

    bank: ExpertBank
    block: int  # its number among those whose ids the desk keeps apart
    slots: Ids  # (E,): the card's slot of each expert, -1: none; never another array
    desk: Desk
    note: Callable[[Sequence[Part], Spent], None]  # called with parts that are done

    @property
    def ids(self) -> Ids:
        """(T, k): what was asked for."""
        found: Ids = self.desk.ids[self.block].numpy()
        return found

    def program(self) -> _native.Program:
        """`desk.missed` experts into `desk.out`."""
        desk = self.desk
        arrays = desk.x.numpy(), self.bank, desk.missed, desk.weights.numpy(), desk.out.numpy()
        return cpu.experts_program(*arrays)

    def answer(self) -> None:
        """Wait until it is given, and compute it."""
        began = time.perf_counter()
        self.desk.mark.wait()
        self.compute(self.slots < 0, time.perf_counter() - began)

    def compute(self, is_ours: NDArray[np.bool_], waiting_seconds: float = 0.0) -> None:
        """Compute those experts (E,) now, after so long a wait."""
        ids, began = self.ids, time.perf_counter()
        np.copyto(self.desk.missed, np.where(is_ours[ids], ids, -1))
        n_experts = int((self.desk.missed >= 0).sum())
        if n_experts:
            self.program().run(cpu.pool())
        else:
            self.desk.out.zero_()
        self.note((self,), Spent(waiting_seconds, time.perf_counter() - began, n_experts))


@dataclass(eq=False)
class Companion:
    """The processor's half of one captured step, in the order of its layers."""

    flags: Flags = field(default_factory=Flags)
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._native = _native.Companion(self.flags.bell, self.flags.reply)
        self._kept: list[Any] = []
        self._spent = Spent()  # until the last run's end

    def ring(self, part: Part) -> None:
        """Another layer; captures its bell."""
        program, desk = part.program(), part.desk
        out = desk.out.numpy()
        self._native.add(program, part.ids, part.slots, desk.missed, out)
        self._kept.append((program, out, part.ids))
        self.parts.append(part)
        self.flags.ring(len(self.parts))

    def wait(self) -> None:
        """Captures the wait for the answer of the layer that rang last."""
        self.flags.wait(len(self.parts))

    def reset(self) -> None:
        """Before each launch of the step."""
        self.flags.reset()

    def run(self) -> None:
        """Right after the launch: answer layer after layer.

        Raises:
            OctavoError: the card failed, or does not go on.
        """
        try:
            self._answer()
        except BaseException:
            self.flags.release()
            _let_end()
            raise
        native, before = self._native, self._spent
        self._spent = Spent(native.waited, native.computed, native.n_missed)
        spent = replace(self._spent)
        spent.add(Spent(-before.waiting_seconds, -before.computing_seconds, -before.n_experts))
        self.parts[0].note(self.parts, spent)

    def _answer(self) -> None:
        n_done, last = 0, time.monotonic()
        while (n_now := self._native.run(cpu.pool(), n_done, PATIENCE_SECONDS)) < len(self.parts):
            if n_now > n_done:
                n_done, last = n_now, time.monotonic()
            where = f"before layer {n_now + 1} of {len(self.parts)} with experts"
            if self._has_ended():
                raise OctavoError(f"The card ended a step {where}", "Please report this.")
            if time.monotonic() - last > MOST_SECONDS:
                raise OctavoError(
                    f"The card has stood still for {MOST_SECONDS:.0f} s {where}",
                    "Start again; if it happens again, use --device cpu.",
                )

    def _has_ended(self) -> bool:
        """Whether it does nothing any more, though it waits for us before its end."""
        try:
            return has_ended()
        except RuntimeError as error:
            raise OctavoError(
                f"The card failed in a step: {error}", "Start again; see `octavo doctor`."
            ) from error


def time_experts(bank: ExpertBank, n_experts: int, n_tokens: int) -> float:
    """Seconds that the processor takes for so many experts of a bank, so many tokens each."""
    ids = np.tile(np.arange(n_experts, dtype=np.int32), n_tokens)[:, None]
    x = np.ones((len(ids), bank.down.shape[1]), np.float32)
    weights, out = np.ones(ids.shape, np.float32), np.empty_like(x)
    program = cpu.experts_program(x, bank, ids, weights, out)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        program.run(cpu.pool())
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _let_end() -> None:
    """Give the card a while to come to the end of a step that failed: its flags are used again."""
    end = time.monotonic() + PATIENCE_SECONDS
    with suppress(RuntimeError):
        while not has_ended() and time.monotonic() < end:
            time.sleep(1e-3)


@contextmanager
def accompanied(companion: Companion | None) -> Iterator[None]:
    """Steps captured inside have this as the processor's half."""
    _here.companion = companion
    try:
        yield
    finally:
        _here.companion = None


@contextmanager
def counted() -> Iterator[list[Part]]:
    """The parts that steps inside give to the processor."""
    _here.given = []
    try:
        yield _here.given
    finally:
        _here.given = None


def give(part: Part, x: Tensor, ids: Tensor, weights: Tensor) -> None:
    """Hand x (T, D) with ids and weights (T, k), contiguous, to the processor; nobody waits."""
    desk = part.desk
    n_tokens, width = x.shape
    n_used = ids.shape[1]
    _give[(triton.cdiv(width, _BLOCK), n_tokens)](
        x, x.stride(0), ids, weights, desk.x, desk.ids[part.block], desk.weights, width, n_used,
        _BLOCK, triton.next_power_of_2(n_used),
    )  # fmt: skip
    companion: Companion | None = getattr(_here, "companion", None)
    if companion is not None:
        companion.ring(part)
        return
    desk.mark.set()
    given: list[Part] | None = getattr(_here, "given", None)
    if given is not None:
        given.append(part)


def take(part: Part, here: Tensor, beside: Tensor | None) -> Tensor:
    """here + the processor's answer + beside, all (T, D) contiguous."""
    companion: Companion | None = getattr(_here, "companion", None)
    if companion is not None:
        companion.wait()
    else:
        part.answer()
    return join(part.desk, here, beside)


def join(desk: Desk, here: Tensor, beside: Tensor | None) -> Tensor:
    """here + what the processor has left on the desk + beside."""
    out = empty(*here.shape)
    _take[(triton.cdiv(here.numel(), _BLOCK),)](
        here, desk.out, here if beside is None else beside, out, here.numel(),
        beside is not None, _BLOCK,
    )  # fmt: skip
    return out
