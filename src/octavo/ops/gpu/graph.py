"""Recorded steps: CUDA graphs hold all launches and copies of a step, and start them at once.

To start a graph takes the longer the more it holds, and the card begins when it is complete. So a
step is two graphs: a short one of the first layers, and the rest, started while the first runs.
Where the processor computes a part of the step (`handoff`), it begins right after the first start.

Its memory comes from a pool of its own, which all recorded steps share: they never run at the
same time, and their results leave the device before the next one starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from octavo.ops.gpu import flags, handoff
from octavo.ops.gpu.device import IS_INTERPRETED, find, synchronise
from octavo.ops.gpu.lanes import submit
from octavo.ops.gpu.relay import stand_apart
from octavo.ops.gpu.transfer import Landings

Result = TypeVar("Result")


# Norms that add to the residual stream until a step is cut: two a layer. The card has to be busy
# with what comes before for as long as the rest takes to start, some 0.4 ms for 40 layers.
NORMS_BEFORE_CUT = 8

_here = threading.local()  # .cuts: of the step that this thread records


class Recording(Generic[Result]):
    """A step that was run once and can be replayed; see `ops.capture`.

    Its result has to be made of what `fetch` gives.
    """

    def __init__(self, step: Callable[[], Result]) -> None:
        self._landings = Landings()
        # The first run compiles kernels and lets libraries set themselves up, which cannot be
        # recorded; its result is the step's. Recording then runs nothing.
        with handoff.counted() as given, self._landings.used(), _cut_by(_Cuts()):
            self.result = step()
        self._again: Callable[[], None]
        if IS_INTERPRETED or (given and not flags.are_captured()):
            self._again = lambda: self._run(step)
            return
        self._companion = handoff.Companion() if given else None
        with handoff.accompanied(self._companion):
            self._graphs = self._record(step)
        self._again = self._start

    def replay(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Run again on the same arrays, and wait for the results."""
        self._again()
        if meanwhile is not None:
            meanwhile()
        synchronise()

    def _start(self) -> None:
        first, *rest = self._graphs
        if self._companion is None:
            _replay(self._graphs, torch.cuda.current_stream())
            return
        self._companion.reset()
        first.replay()
        submit()
        started = _launcher().submit(_replay, rest, torch.cuda.current_stream())
        try:
            self._companion.run()
        finally:
            started.result()

    def _run(self, step: Callable[[], Result]) -> None:
        with self._landings.used():
            step()

    def _record(self, step: Callable[[], Result]) -> list[Any]:
        stream = _stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            recorder = _Recorder()
            try:
                with _cut_by(recorder):
                    self._run(step)
            finally:
                recorder.end()
        torch.cuda.current_stream().wait_stream(stream)
        return recorder.graphs


class _Cuts:
    """Where a step is cut. In its first run, which is plain, kernels are launched as in the others:
    else they would be compiled while it is captured."""

    def __init__(self) -> None:
        self._norms_left = NORMS_BEFORE_CUT

    def offer(self) -> None:
        self._norms_left -= 1
        if self._norms_left == 0:
            self.cut()

    def cut(self) -> None:
        stand_apart()


class _Recorder(_Cuts):
    """Captures what is launched as graphs that run one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        self.graphs.append(torch.cuda.CUDAGraph())
        self.graphs[-1].capture_begin(pool=_pool()[0], capture_error_mode="thread_local")

    def end(self) -> None:
        self.graphs[-1].capture_end()

    def cut(self) -> None:
        self.end()
        self._begin()
        super().cut()


@contextmanager
def _cut_by(cuts: _Cuts) -> Iterator[None]:
    _here.cuts = cuts
    try:
        yield
    finally:
        _here.cuts = None


def may_cut() -> None:
    """Called between two halves of a layer, where nothing goes on beside anything."""
    cuts: _Cuts | None = getattr(_here, "cuts", None)
    if cuts is not None:
        cuts.offer()


def _replay(graphs: Sequence[Any], stream: Any) -> None:
    with torch.cuda.stream(stream):
        for graph in graphs:
            graph.replay()
    submit()


@cache
def _launcher() -> ThreadPoolExecutor:
    """Starts the rest of a step while the first layers are computed."""
    return ThreadPoolExecutor(1, thread_name_prefix="octavo-launcher")


def capture(step: Callable[[], Result]) -> Recording[Result]:
    """Run and record `step`."""
    return Recording(step)


@cache
def _pool() -> tuple[Any, Any]:
    """The pool, and a step that keeps it: torch gives a pool up when its last step goes."""
    handle, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(_stream()):
        keeper.capture_begin(pool=handle, capture_error_mode="thread_local")
        torch.zeros(1, device=find().torch_device)
        keeper.capture_end()
    return handle, keeper


@cache
def _stream() -> Any:
    return torch.cuda.Stream()
