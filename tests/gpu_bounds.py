"""What Triton's interpreter lets pass and a device does not: a watch over every load and store.

The fixture `watched` replaces the interpreter's memory accesses by ones that fail where a kernel

- touches bytes outside the tensors that it was launched with;
- reads what another thread of the same program may have stored, with no barrier in between;
- reads or changes what another program of the same launch stores, unless atomics order the two.

Memory of `torch.empty` holds what nobody may use: NaN, or numbers beyond every bound. On a device
the fixture does nothing. Import it into a test module: it is used by every test there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from gpu_backend import IS_INTERPRETED, torch

# Kernels that may load, but not use, what another program is storing: such bytes become 0xFF.
# Attention reads blocks of positions; tokens of another program may stand in the last, unseen.
MAY_RACE = {"attend_rows"}
SEVERAL = -1  # of `loaded_by`: more than one program
WILD = 0x7F7F7F7F


def tensors_in(values: Iterable[Any]) -> Iterable[Any]:
    """The tensors among arguments of a launch, also those within tuples."""
    for value in values:
        if isinstance(value, tuple):
            yield from tensors_in(value)
        elif isinstance(value, torch.Tensor):
            yield value


def spans_of(tensors: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """First and last-but-one addresses of the memory of these tensors, joined and sorted."""
    spans = []
    for x in tensors:
        if x.numel():
            last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
            spans.append((x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()))
    joined: list[list[int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    starts, ends = zip(*joined, strict=True) if joined else ((), ())
    return np.array(starts, np.int64), np.array(ends, np.int64)


class Watch:
    """One launch: who stored and who loaded every byte of its tensors."""

    def __init__(self, kernel: str, tensors: Iterable[Any]) -> None:
        self.kernel = kernel
        self._starts, self._ends = spans_of(tensors)
        sizes = self._ends - self._starts
        self._offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        n = int(sizes.sum())
        self._stored_by = np.zeros(n, np.int32)
        self._stored_at = np.zeros(n, np.int32)  # how many barriers the program had passed
        self._loaded_by = np.zeros(n, np.int32)
        self._grid_place: tuple[int, ...] = ()
        self._program = self._barriers = 0
        self._is_ordered = False

    def begin(self, place: tuple[int, ...]) -> None:
        self._grid_place = place
        self._program += 1
        self._barriers, self._is_ordered = 0, False

    def barrier(self) -> None:
        self._barriers += 1

    def atomic(self, pointers: np.ndarray, mask: np.ndarray, size: int) -> None:
        self._bytes(pointers, mask, size)
        self._is_ordered = True

    def load(self, pointers: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
        """Which bytes (n, size), of the places that count, may be anything."""
        at = self._bytes(pointers, mask, size)
        stored_by = self._stored_by[at]
        is_own = stored_by == self._program
        if np.any(is_own & (self._stored_at[at] == self._barriers)):
            self._fail("loads what it stored itself, with no barrier in between")
        races = (stored_by != 0) & ~is_own & (not self._is_ordered)
        if self.kernel not in MAY_RACE and races.any():
            self._fail("loads what another program stores")
        seen = self._loaded_by[at]
        is_first = (seen == 0) | (seen == self._program)
        self._loaded_by[at] = np.where(is_first, self._program, SEVERAL)
        return races

    def store(self, pointers: np.ndarray, values: np.ndarray, mask: np.ndarray, size: int) -> None:
        """Before the values are stored."""
        at = self._bytes(pointers, mask, size)
        if not self._is_ordered:
            others = (self._stored_by[at] != 0) & (self._stored_by[at] != self._program)
            seen = self._loaded_by[at]
            if self.kernel not in MAY_RACE:
                others |= (seen != 0) & (seen != self._program)
            if np.any(others & (self._held(pointers, mask, size) != _bytes_of(values, mask, size))):
                self._fail("changes what another program stores or loads")
        self._stored_by[at] = self._program
        self._stored_at[at] = self._barriers

    def _bytes(self, pointers: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
        """Numbers of the bytes (n, size) at the pointers that count."""
        first = pointers[mask].astype(np.int64)
        span = np.searchsorted(self._starts, first, "right") - 1
        is_in = span >= 0
        is_in[is_in] = first[is_in] + size <= self._ends[span[is_in]]
        if not is_in.all():
            self._fail(f"touches {np.count_nonzero(~is_in)} places outside of its tensors")
        return (first - self._starts[span] + self._offsets[span])[:, None] + np.arange(size)

    @staticmethod
    def _held(pointers: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
        from triton.runtime.interpreter import _interpreter

        first = pointers[mask].astype(np.uint64)
        at = np.ascontiguousarray(first[:, None] + np.arange(size, dtype=np.uint64))
        everywhere, zeros = np.ones(at.shape, bool), np.zeros(at.shape, np.uint8)
        held: np.ndarray = _interpreter.load(at, everywhere, zeros, np.dtype(np.uint8))
        return held

    def _fail(self, what: str) -> None:
        raise AssertionError(f"{self.kernel}, program {self._grid_place}: {what}")


def _bytes_of(values: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
    own = np.ascontiguousarray(np.broadcast_to(values, mask.shape)[mask])
    return own.view(np.uint8).reshape(-1, size)


def _poisoned(empty: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        x = empty(*args, **kwargs)
        if x.is_floating_point():
            return x.fill_(float("nan"))
        return x.fill_(0xFF if x.dtype == torch.uint8 else WILD)

    return run


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch the launches of a test; see the module."""
    if not IS_INTERPRETED:
        return
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, _get_np_dtype

    plain = {name: getattr(InterpreterBuilder, name) for name in WATCHED}
    launch = GridExecutor.__call__
    now: list[Watch] = []

    def size_of(pointers: Any) -> int:
        return int(np.dtype(_get_np_dtype(pointers.get_element_ty())).itemsize)

    def call(executor: Any, *args: Any, **kwargs: Any) -> None:
        now.append(Watch(executor.fn.__name__, tensors_in([*args, *kwargs.values()])))
        try:
            launch(executor, *args, **kwargs)
        finally:
            now.pop()

    def set_grid_idx(builder: Any, *place: int) -> None:
        now[-1].begin(place)
        plain["set_grid_idx"](builder, *place)

    def create_barrier(builder: Any) -> Any:
        now[-1].barrier()
        return plain["create_barrier"](builder)

    def create_masked_load(builder: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        races = now[-1].load(pointers.data, mask.data, size_of(pointers))
        loaded = plain["create_masked_load"](builder, pointers, mask, *rest)
        if races.any():
            own = np.ascontiguousarray(loaded.data[mask.data])
            own.view(np.uint8).reshape(races.shape)[races] = 0xFF
            loaded.data[mask.data] = own
        return loaded

    def create_masked_store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        now[-1].store(pointers.data, value.data, mask.data, size_of(pointers))
        return plain["create_masked_store"](builder, pointers, value, mask, *rest)

    def create_atomic_rmw(
        builder: Any, kind: Any, pointers: Any, val: Any, mask: Any, *rest: Any
    ) -> Any:
        now[-1].atomic(pointers.data, mask.data, size_of(pointers))
        return plain["create_atomic_rmw"](builder, kind, pointers, val, mask, *rest)

    own = locals()
    monkeypatch.setattr(GridExecutor, "__call__", call)
    for name in WATCHED:
        monkeypatch.setattr(InterpreterBuilder, name, own[name])
    monkeypatch.setattr(torch, "empty", _poisoned(torch.empty))


WATCHED = (
    "set_grid_idx",
    "create_barrier",
    "create_masked_load",
    "create_masked_store",
    "create_atomic_rmw",
)
