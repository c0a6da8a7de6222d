"""Prompts of which vectors are wanted instead of answers."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from octavo.engine.sequence import Sequence
from octavo.engine.stream import Stream
from octavo.errors import CancelledError
from octavo.models.pooling import pool


class Embedding:
    """The sequences of one call. `cancelled` ends them all; it is set at the end in any case."""

    def __init__(self, cancelled: threading.Event | None) -> None:
        self._cancelled = cancelled or threading.Event()
        self._jobs: list[tuple[Sequence, Stream]] = []

    def add(self, job: Sequence) -> Sequence:
        """One more, before it enters the engine: its states are kept."""
        job.states = []
        job.mailbox.cancelled = self._cancelled
        self._jobs.append((job, Stream(job.mailbox)))
        return job

    def vectors(self, pooling: str, n_embd: int) -> NDArray[np.float32]:
        """Wait for all of them -> (n, n_embd), pooled by mean, cls or last.

        Raises:
            OctavoError: one of them failed.
            CancelledError: `cancelled` was set, or the engine was closed.
            UnsupportedError: another pooling.
        """
        made = np.zeros((len(self._jobs), n_embd), np.float32)
        for vector, (job, stream) in zip(made, self._jobs, strict=True):
            stream.ids()
            if stream.finish_reason == "cancelled":
                raise CancelledError("the vectors were cancelled", "Ask again if they are wanted.")
            vector[:] = pool(np.concatenate(job.states or []), pooling)
        return made
