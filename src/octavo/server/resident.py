"""The model that is served: loaded in the background, with a bounded number of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.chat import Reply
from octavo.errors import BusyError, OctavoError
from octavo.plan.plan import Plan
from octavo.server.faults import Fault, RefusedError
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, SamplingParams

State = Literal["loading", "ready", "failed", "closed"]
LOADING_RETRY_SECONDS = 2


class Counters(Protocol):
    """What is needed of `engine.stats.Stats`."""

    def snapshot(self) -> dict[str, Any]: ...


class Counted(Protocol):
    """What is needed of `engine.engine.Engine`."""

    @property
    def stats(self) -> Counters: ...


class Served(Protocol):
    """What is needed of `session.Session`."""

    @property
    def plan(self) -> Plan: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def template(self) -> Template | None: ...
    @property
    def engine(self) -> Counted: ...
    def ask(self, request: ChatRequest) -> Reply: ...
    def complete(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        stop: Sequence[str] = (),
    ) -> Reply: ...
    def embed(
        self, texts: str | Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> NDArray[np.float32]: ...
    def close(self) -> None: ...


Report = Callable[[str, int, int], None]  # (stage, bytes done, bytes in all)
Loader = Callable[[Report], Served]


@dataclass
class Tally:
    """Totals since the start; the event loop writes."""

    requests: dict[tuple[str, int], int]  # (path, status) -> count
    reasoning_only: int = 0
    refused_busy: int = 0


class Resident:
    """One model by its name.

    Args:
        load: gives the model; called on a thread of its own by `start`.
        max_waiting: requests that may wait besides those that the model computes at once.
    """

    def __init__(
        self,
        load: Loader,
        name: str,
        *,
        max_waiting: int = 64,
    ) -> None:
        self.name = name
        self.created = int(time.time())
        self.state: State = "loading"
        self.error: Exception | None = None
        self.progress: tuple[str, int, int] = ("starting", 0, 0)
        self.tally = Tally({})
        self.n_running = 0  # requests that were admitted and have not ended
        self._load = load
        self._max_waiting = max_waiting
        self._session: Served | None = None
        self._lock = threading.Lock()
        self.on_end_of_loading: Callable[[], None] = lambda: None  # called on the loading thread

    def start(self) -> None:
        """Begin to load; returns at once."""
        threading.Thread(target=self._run, name="octavo-load", daemon=True).start()

    @property
    def session(self) -> Served:
        """The loaded model.

        Raises:
            RefusedError: it is still being loaded (503), or could not be.
        """
        if self._session is not None and self.state == "ready":
            return self._session
        raise RefusedError(self.unavailable())

    def unavailable(self) -> Fault:
        """Why there is no model, as far as it is known."""
        if self.state == "closed":
            return Fault(503, "The server is stopping", retry_after_seconds=LOADING_RETRY_SECONDS)
        if self.state == "failed":
            return Fault(500, f"The model could not be loaded: {self.error}")
        stage, done, total = self.progress
        more = {"status": "loading", "stage": stage, "done_bytes": done, "total_bytes": total}
        return Fault(503, "Loading model", retry_after_seconds=LOADING_RETRY_SECONDS, more=more)

    def admit(self, n: int = 1) -> None:
        """Take places for `n` answers; `release` gives each back.

        Raises:
            BusyError: too many are running and waiting already.
            RefusedError: as `session`.
        """
        limit = self.session.plan.sequences + self._max_waiting
        with self._lock:
            if self.n_running + n > limit:
                self.tally.refused_busy += 1
                raise BusyError(
                    f"{self.n_running} requests are running or waiting already",
                    "Try again in a while, or start the server with a larger --max-queue.",
                )
            self.n_running += n

    def release(self, n: int = 1) -> None:
        """Give places back."""
        with self._lock:
            self.n_running -= n

    def close(self) -> None:
        """End what runs, and the model. Safe to call at any time."""
        with self._lock:
            session, self._session, self.state = self._session, None, "closed"
        if session is not None:
            session.close()

    def _run(self) -> None:
        try:
            session = self._load(self._report)
        except Exception as error:  # told to whoever asks, and to the one who started it
            known = isinstance(error, OctavoError)
            self.error = error if known else OctavoError(f"loading failed: {error!r}")
            self.state = "failed"
        else:
            self._take(session)
        self.on_end_of_loading()

    def _take(self, session: Served) -> None:
        with self._lock:
            is_wanted = self.state == "loading"
            if is_wanted:
                self._session, self.state = session, "ready"
        if not is_wanted:
            session.close()

    def _report(self, stage: str, done: int, total: int) -> None:
        self.progress = (stage, done, total)
