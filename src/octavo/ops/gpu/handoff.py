"""The tokens of a layer go to the processor and come back, while the card does its own part.

A kernel writes them into pinned memory, the processor computes the experts that the card does not
hold, and a kernel adds its result. How the two wait for each other depends on the step. A plain
one waits for a mark in the stream. A captured one rings a bell and awaits a reply (`flags`); the
processor's half of it is a list that `Companion` keeps and runs natively, right after the launch.
"""

from __future__ import annotations

import statistics
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
from octavo.ops.gpu import relay
from octavo.ops.gpu.device import Tensor, empty, pinned
from octavo.ops.gpu.flags import Flags
from octavo.ops.gpu.lanes import Mark, has_ended
from octavo.ops.weight import ExpertBank

PATIENCE_SECONDS = 1.0  # without a bell until the card is asked whether it has failed
MOST_SECONDS = 30.0  # without a bell until the step is given up
_BLOCK = 1024
_TIMED_BANKS = 5

Ids = NDArray[np.int32]
_here = threading.local()  # .companion: that of the capture going on in this thread; .n_given


@triton.jit
def _give(
    x, x_stride, ids, weights, slots, shares, to_x, to_ids, to_weights, to_missed, linked,
    width, n_used,
    BLOCK: tl.constexpr,
    USED: tl.constexpr,
    HAS_LINK: tl.constexpr,
):  # fmt: skip
    """A token's activations, ids and weights into memory that the processor reads.

    Of the ids without a slot, the last `shares`[how many there are] are left for the card to read
    over the link: they are `linked`; the others, `to_missed`, are the processor's.
    """
    relay.take_over()
    token = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + token * x_stride + i, mask=i < width)
    tl.store(to_x + token * width + i, values, mask=i < width)
    if tl.program_id(0) == 0:
        k = tl.arange(0, USED)
        pair, inside = token * n_used + k, k < n_used
        expert = tl.load(ids + pair, mask=inside, other=0)
        is_missed = (tl.load(slots + expert, mask=inside, other=0) < 0) & inside
        is_linked = is_missed & False
        if HAS_LINK:
            missed = is_missed.to(tl.int32)
            n_missed = tl.sum(missed)
            is_linked = is_missed & (n_missed - tl.cumsum(missed) < tl.load(shares + n_missed))
            tl.store(linked + pair, tl.where(is_linked, expert, -1), mask=inside)
        tl.store(to_ids + pair, expert, mask=inside)
        tl.store(to_missed + pair, tl.where(is_missed & (is_linked == 0), expert, -1), mask=inside)
        tl.store(to_weights + pair, tl.load(weights + pair, mask=inside), mask=inside)


@triton.jit
def _take(
    here, linked, there, beside, out, size,
    HAS_LINK: tl.constexpr,
    HAS_BESIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The card's part, what it read over the link, the processor's, and what was computed beside:
    always in this order."""
    relay.take_over()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(here + i, mask=i < size)
    if HAS_LINK:
        total += tl.load(linked + i, mask=i < size)
    total += tl.load(there + i, mask=i < size)
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
        self._missed = pinned(n_tokens * n_used, torch.int32)
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
                self._missed[:pairs].view(*shape),
            )
        return self._desks[n_tokens]


@dataclass(frozen=True, eq=False)
class Desk:
    """The part of a room that steps of T tokens use."""

    x: Tensor  # (T, D) float32
    ids: Tensor  # (blocks, T, k) int32
    weights: Tensor  # (T, k) float32
    out: Tensor  # (T, D) float32: the processor's answer
    missed: Tensor  # (T, k): what the processor is to compute, -1: nothing
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
    """What the processor does for one layer: experts of `bank` that the card leaves to it."""

    bank: ExpertBank
    block: int  # its number among those whose ids the desk keeps apart
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
        x, missed, weights, out = (t.numpy() for t in (desk.x, desk.missed, desk.weights, desk.out))
        return cpu.experts_program(x, self.bank, missed, weights, out)

    def answer(self) -> None:
        """Wait until it is given, and compute it."""
        began = time.perf_counter()
        self.desk.mark.wait()
        self._compute(time.perf_counter() - began)

    def compute(self, is_ours: NDArray[np.bool_]) -> None:
        """Compute those experts (E,) now, whatever the card left."""
        ids = self.ids
        np.copyto(self.desk.missed.numpy(), np.where(is_ours[ids], ids, -1))
        self._compute(0.0)

    def _compute(self, waiting_seconds: float) -> None:
        began = time.perf_counter()
        n_experts = int((self.desk.missed.numpy() >= 0).sum())
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
        missed, out = desk.missed.numpy(), desk.out.numpy()
        self._native.add(program, missed, part.bank.down.shape[0], out)
        self._kept.append((program, missed, out))
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


def time_experts(banks: Sequence[ExpertBank], n_experts: int, n_tokens: int) -> float:
    """Seconds that the processor takes for so many experts of a bank, so many tokens each.

    The median of some banks, each read once: what a cache holds would be too fast.
    """
    ids = np.tile(np.arange(n_experts, dtype=np.int32), n_tokens)[:, None]
    x = np.ones((len(ids), banks[0].down.shape[1]), np.float32)
    weights, out = np.ones(ids.shape, np.float32), np.empty_like(x)
    seconds = []
    for bank in banks[:_TIMED_BANKS]:
        program = cpu.experts_program(x, bank, ids, weights, out)
        began = time.perf_counter()
        program.run(cpu.pool())
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


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


def give(
    part: Part,
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    slots: Tensor,
    shares: Tensor | None = None,
) -> Tensor | None:
    """Hand x (T, D) with ids and weights (T, k), contiguous, to the processor; nobody waits.

    `slots` (E,) int32: -1 for those that it is to compute. With `shares` (k + 1,) int32 some of
    them are left out, as many of each token as stand there at how many it has: these ids (T, k),
    -1 for the others, are the result.
    """
    desk = part.desk
    n_tokens, width = x.shape
    n_used, has_link = ids.shape[1], shares is not None
    linked = empty(n_tokens, n_used, dtype=torch.int32) if has_link else None
    _give[(triton.cdiv(width, _BLOCK), n_tokens)](
        x, x.stride(0), ids, weights, slots, shares if has_link else slots, desk.x,
        desk.ids[part.block], desk.weights, desk.missed, linked if has_link else desk.missed,
        width, n_used, _BLOCK, triton.next_power_of_2(n_used), has_link, **relay.options(),
    )  # fmt: skip
    relay.stand_apart()  # in plain steps too: they compile the kernels of captured ones
    companion: Companion | None = getattr(_here, "companion", None)
    if companion is not None:
        companion.ring(part)
    else:
        desk.mark.set()
        given: list[Part] | None = getattr(_here, "given", None)
        if given is not None:
            given.append(part)
    return linked


def take(part: Part, here: Tensor, beside: Tensor | None, linked: Tensor | None = None) -> Tensor:
    """here + linked + the processor's answer + beside, all (T, D) contiguous."""
    companion: Companion | None = getattr(_here, "companion", None)
    if companion is not None:
        companion.wait()
    else:
        part.answer()
    relay.stand_apart()
    return join(part.desk, here, beside, linked)


def join(desk: Desk, here: Tensor, beside: Tensor | None, linked: Tensor | None = None) -> Tensor:
    """here + linked + what the processor has left on the desk + beside."""
    out = empty(*here.shape)
    _take[(triton.cdiv(here.numel(), _BLOCK),)](
        here, here if linked is None else linked, desk.out, here if beside is None else beside,
        out, here.numel(), linked is not None, beside is not None, _BLOCK, **relay.options(),
    )  # fmt: skip
    return out
