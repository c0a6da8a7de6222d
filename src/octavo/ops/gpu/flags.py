"""Two words of pinned memory by which card and processor tell each other how far they are.

The card writes and awaits them by stream memory operations of the driver. They can be part of a
captured step; whether they are on this machine is tried once. Of these functions those with _v2 are
called: the others break a capture.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.ops.gpu import driver
from octavo.ops.gpu.device import IS_INTERPRETED, find, pinned
from octavo.ops.gpu.driver import ADDRESS, POINTER, WORD
from octavo.ops.gpu.lanes import submit

_APART = 32  # words between the two: they must not share a line of anybody's cache
_GREATER_OR_EQUAL = 0  # of cuStreamWaitValue32; the difference counts as a signed number
_DEFAULT = 0  # of cuStreamWriteValue32: what was written before is seen before
_RELEASED = 0x7FFFFFFF  # a reply that ends every wait
_TRIAL_SECONDS = 1.0

Words = NDArray[np.uint32]
_hung: list[Any] = []


class Flags:
    """`bell`: parts of the step that the card has handed over; `reply`: those answered."""

    def __init__(self) -> None:
        memory = pinned(2 * _APART, torch.int32).zero_()
        words: Words = memory.numpy().view(np.uint32)
        self._memory = memory
        self.bell, self.reply = words[:1], words[_APART : _APART + 1]

    def reset(self) -> None:
        """Before a step, while the card has nothing to do with them."""
        self.bell[0] = self.reply[0] = 0

    def release(self) -> None:
        """Let the card go on without answers, so that a step that failed comes to its end."""
        self.reply[0] = _RELEASED

    def ring(self, number: int) -> None:
        """Let the card write the bell, after what it was given before."""
        _call("cuStreamWriteValue32_v2", self._memory.data_ptr(), number, _DEFAULT)

    def wait(self, number: int) -> None:
        """Let the card wait until the reply has reached this number."""
        place = self._memory.data_ptr() + 4 * _APART
        _call("cuStreamWaitValue32_v2", place, number, _GREATER_OR_EQUAL)


@cache
def are_captured() -> bool:
    """Whether a captured step can ring and wait here: tried with a small one."""
    if IS_INTERPRETED or find().is_amd:
        return False
    try:
        return _try()
    except (OSError, AttributeError, RuntimeError):  # no such library, function or operation
        return False


def _try() -> bool:
    """A step of two bells with a wait between them, on a stream of its own."""
    flags, stream, graph = Flags(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            flags.ring(1)
            flags.wait(1)
            flags.ring(2)
        finally:
            graph.capture_end()
        graph.replay()
        submit()
    works = _comes_true(lambda: flags.bell[0] == 1)
    time.sleep(1e-3)
    works = works and flags.bell[0] == 1  # it does wait
    flags.reply[0] = 1
    works = works and _comes_true(lambda: flags.bell[0] == 2)
    flags.release()
    if _comes_true(stream.query):
        return bool(works)
    _hung.extend((flags, stream, graph))  # left alone: nothing else is on that stream
    return False


def _comes_true(condition: Callable[[], Any]) -> bool:
    end = time.monotonic() + _TRIAL_SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
    return True


def _call(name: str, address: int, value: int, options: int) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    driver.call(name, (POINTER, ADDRESS, WORD, WORD), stream, address, value, options)
