"""One model that is served: its state, its progress, and a bounded number of requests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.chat import Reply
from octavo.engine.places import PlaceView
from octavo.errors import BusyError, MemoryPlanError, OctavoError
from octavo.plan.plan import Plan
from octavo.server.conversations import Conversations
from octavo.server.faults import Fault, RefusedError
from octavo.session import Moved
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, SamplingParams

State = Literal["unloaded", "loading", "ready", "failed", "closed"]
STATES: tuple[State, ...] = get_args(State)
LOADING_RETRY_SECONDS = 2


class Counters(Protocol):
    """What is needed of `engine.stats.Stats`."""

    def snapshot(self) -> dict[str, Any]: ...


class Counted(Protocol):
    """What is needed of `engine.engine.Engine`."""

    @property
    def stats(self) -> Counters: ...
    @property
    def places(self) -> Places: ...


class Places(Protocol):
    """What is needed of `engine.places.Places`."""

    def views(self) -> list[PlaceView]: ...


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
    @property
    def n_embd(self) -> int: ...
    @property
    def video_bytes(self) -> int | None: ...
    @property
    def pooling(self) -> str: ...
    def ask(self, request: ChatRequest) -> Reply: ...
    def complete(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        stop: Sequence[str] = (),
    ) -> Reply: ...
    def embed(
        self,
        texts: str | Sequence[str | Sequence[int]],
        dimensions: int | None = None,
        cancelled: threading.Event | None = None,
    ) -> NDArray[np.float32]: ...
    def save_place(self, number: int, path: Path) -> Moved: ...
    def restore_place(self, number: int, path: Path) -> Moved: ...
    def erase_place(self, number: int) -> int: ...
    def close(self) -> None: ...


Report = Callable[[str, int, int], None]  # (stage, bytes done, bytes in all)
Loader = Callable[[Report, Plan | None], Served]
Measure = Callable[[Report, int | None], Plan]  # for so many bytes; None: for what is free


@dataclass
class Tally:
    """Totals since the start; the event loop writes."""

    requests: dict[tuple[str, int], int]  # (path, status) -> count
    reuse_broken: dict[str, int] = field(default_factory=dict)  # by cause
    reasoning_only: int = 0
    refused_busy: int = 0


class Resident:
    """One model by its name. `Fleet` loads it and gives it up.

    Args:
        load: gives the model, by the plan that `measure` made.
        measure: plans it; None: its size is not known, and it is never refused for that.
        max_waiting: requests that may wait besides those that the model computes at once.
        conversations: what is remembered of its chats.
    """

    def __init__(
        self,
        load: Loader,
        name: str,
        *,
        measure: Measure | None = None,
        max_waiting: int = 64,
        conversations: Conversations | None = None,
    ) -> None:
        self.name = name
        self.created = int(time.time())
        self.state: State = "unloaded"
        self.error: Exception | None = None
        self.progress: tuple[str, int, int] = ("starting", 0, 0)
        self.tally = Tally({})
        self.conversations = conversations or Conversations()
        self.n_running = 0  # requests that were admitted and have not ended
        self.was_ready = False
        self.last_used = 0.0  # of time.monotonic
        self._measure = measure
        self._n_held = 0  # requests that are on their way to be admitted
        self._load = load
        self._max_waiting = max_waiting
        self._session: Served | None = None
        self._lock = threading.Lock()
        self.on_end_of_loading: Callable[[], None] = lambda: None  # called on the loading thread

    @property
    def is_idle(self) -> bool:
        """Loaded, and nobody uses it."""
        return self.state == "ready" and not self.n_running and not self._n_held

    @property
    def n_bytes(self) -> int:
        """Memory that it takes now, as planned."""
        session = self._session
        if session is None:
            return 0
        plan = session.plan  # mapped weights that do not fit are in memory only in part
        return plan.total_bytes if plan.fits else plan.own_bytes

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
            status = 507 if isinstance(self.error, MemoryPlanError) else 500
            return Fault(status, f"The model could not be loaded: {self.error}")
        if self.state == "unloaded":
            why = f": {self.error}" if self.error else ""
            again = LOADING_RETRY_SECONDS
            return Fault(503, f"The model is not loaded{why}", retry_after_seconds=again)
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
            self.last_used = time.monotonic()

    def release(self, n: int = 1) -> None:
        """Give places back."""
        with self._lock:
            self.n_running -= n
            self.last_used = time.monotonic()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Not given up for another model while the block runs."""
        with self._lock:
            self._n_held += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_held -= 1

    def close(self) -> None:
        """End what runs, and the model. Safe to call at any time."""
        with self._lock:
            session, self._session, self.state = self._session, None, "closed"
        if session is not None:
            session.close()

    def begin(self) -> bool:
        """It is to be loaded now; False: it is loaded, being loaded or closed."""
        with self._lock:
            if self.state not in ("unloaded", "failed"):
                return False
            self.state, self.error, self.progress = "loading", None, ("starting", 0, 0)
            return True

    def plan(self, room_bytes: int | None) -> Plan | None:
        """The plan for so much memory, None: what is free; None if its size is not known.

        Raises:
            OctavoError: it cannot be had, or not in so much memory.
        """
        return self._measure(self._report, room_bytes) if self._measure else None

    def fill(self, plan: Plan | None) -> None:
        """Load it; takes its time."""
        session = self._load(self._report, plan)
        with self._lock:
            is_wanted = self.state == "loading"
            if is_wanted:
                self._session, self.state, self.was_ready = session, "ready", True
        if not is_wanted:
            session.close()

    def fail(self, error: Exception, *, is_passing: bool = False) -> None:
        """It could not be loaded; whoever asks is told why. `is_passing`: it may work later."""
        known = isinstance(error, OctavoError)
        with self._lock:
            if self.state == "loading":
                self.error = error if known else OctavoError(f"loading failed: {error!r}")
                self.state = "unloaded" if is_passing else "failed"

    def retire(self, *, even_busy: bool = False) -> bool:
        """Give the model up; False: it is in use, or not loaded."""
        with self._lock:
            if self.state != "ready" or not (even_busy or self.is_idle):
                return False
            session, self._session, self.state = self._session, None, "unloaded"
        if session is not None:
            session.close()
        return True

    def _report(self, stage: str, done: int, total: int) -> None:
        self.progress = (stage, done, total)
