"""Copies beside the work: streams of their own, and marks in streams that others wait for.

In the interpreter everything happens at once, in the order of the calls, and every mark has been
passed when it is set.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from octavo.ops.gpu.device import IS_INTERPRETED, Tensor


class Mark:
    """A place in a stream, which is passed when everything before it is done.

    One that was never set counts as passed. It may be set again.
    """

    def __init__(self) -> None:
        self._event: Any = None if IS_INTERPRETED else torch.cuda.Event()

    def set(self) -> None:
        """Here, in the stream that computes."""
        if self._event is not None:
            self._event.record()

    def is_passed(self) -> bool:
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        """Let this thread wait until it is passed."""
        if self._event is not None:
            self._event.synchronize()

    def hold(self) -> None:
        """Let the stream that computes wait for it; this thread goes on."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)


class Lane:
    """A stream of copies to the device. What it copies from has to stay as it is meanwhile."""

    def __init__(self) -> None:
        self._stream: Any = None if IS_INTERPRETED else torch.cuda.Stream()

    def hold(self, mark: Mark) -> None:
        """Let what is copied from now on wait for the mark."""
        if self._stream is not None:
            self._stream.wait_event(mark._event)

    def copy(self, copies: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Begin copies of bytes: (target on the device, source in main memory), both (n,)."""
        if self._stream is None:
            for target, source in copies:
                target.copy_(source)
            return
        with torch.cuda.stream(self._stream):
            for target, source in copies:
                target.copy_(source, non_blocking=True)

    def set(self, mark: Mark) -> None:
        """Set the mark behind what was copied so far."""
        if self._stream is not None:
            mark._event.record(self._stream)


def submit() -> None:
    """Let what was launched begin now: drivers for Windows may hold it back until somebody asks."""
    if sys.platform == "win32":
        has_ended()


def has_ended() -> bool:
    """Whether the stream that computes has nothing left to do.

    Raises:
        RuntimeError: what it did has failed.
    """
    return IS_INTERPRETED or bool(torch.cuda.current_stream().query())
