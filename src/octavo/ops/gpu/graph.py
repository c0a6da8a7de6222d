"""Recorded steps: a CUDA graph holds all launches and copies of a step, and starts them at once.

Where the processor computes a part of the step (`handoff`), it does so right after the start.

Its memory comes from a pool of its own, which all recorded steps share: they never run at the
same time, and their results leave the device before the next one starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from octavo.ops.gpu import flags, handoff
from octavo.ops.gpu.device import IS_INTERPRETED, find, synchronise
from octavo.ops.gpu.lanes import submit
from octavo.ops.gpu.transfer import Landings

Result = TypeVar("Result")


class Recording(Generic[Result]):
    """A step that was run once and can be replayed; see `ops.capture`.

    Its result has to be made of what `fetch` gives.
    """

    def __init__(self, step: Callable[[], Result]) -> None:
        self._landings = Landings()
        # The first run compiles kernels and lets libraries set themselves up, which cannot be
        # recorded; its result is the step's. Recording then runs nothing.
        with handoff.counted() as given, self._landings.used():
            self.result = step()
        self._again: Callable[[], None]
        if IS_INTERPRETED or (given and not flags.are_captured()):
            self._again = lambda: self._run(step)
            return
        self._companion = handoff.Companion() if given else None
        with handoff.accompanied(self._companion):
            self._graph = self._record(step)
        self._again = self._start

    def replay(self) -> None:
        """Run again on the same arrays, and wait for the results."""
        self._again()
        synchronise()

    def _start(self) -> None:
        if self._companion is None:
            self._graph.replay()
            return
        self._companion.reset()
        self._graph.replay()
        submit()
        self._companion.run()

    def _run(self, step: Callable[[], Result]) -> None:
        with self._landings.used():
            step()

    def _record(self, step: Callable[[], Result]) -> Any:
        graph = torch.cuda.CUDAGraph()
        stream = _stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=_pool()[0], capture_error_mode="thread_local")
            try:
                self._run(step)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return graph


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
