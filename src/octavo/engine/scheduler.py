"""Who computes next: prompts in pieces, answers one step each, nobody starves.

Plain Python about queues; it knows no arrays, no cache and no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from octavo.record import dataclass


class Job(Protocol):
    """What the scheduler needs of a sequence."""

    def piece_tokens(self, budget: int) -> int:
        """How many of its next tokens to compute at once: 1..budget, fewer before a mark."""
        ...


J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Prefill(Generic[J]):
    """Compute these many further tokens of these prompts."""

    pieces: tuple[tuple[J, int], ...]


@dataclass(frozen=True)
class Decode(Generic[J]):
    """One step for all that generate."""

    jobs: tuple[J, ...]


class Scheduler(Generic[J]):
    """Admits in order of arrival, then turns prompts and answers over fairly.

    - At most `max_running` jobs hold a place; the others wait, first come first served, except
      that who waits for another job lets the next ones go first.
    - While some generate and some have prompt left, the two kinds of step alternate.
    - A prefill step holds at most `step_tokens` tokens. Prompts take turns: whose piece did not
      finish its prompt goes behind the others. Room left in a step goes to the next prompts, so
      short ones share one step and wait for no long one.
    """

    def __init__(self, max_running: int, step_tokens: int) -> None:
        self.waiting: deque[J] = deque()
        self.prefilling: deque[J] = deque()
        self.decoding: list[J] = []
        self._max_running = max_running
        self._step_tokens = step_tokens
        self._prefilled_last = False

    @property
    def n_running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    @property
    def jobs(self) -> list[J]:
        """Everyone, running ones first."""
        return [*self.decoding, *self.prefilling, *self.waiting]

    def add(self, job: J) -> None:
        self.waiting.append(job)

    def candidate(self, waits: Callable[[J], bool] = lambda job: False) -> J | None:
        """The job that may start now, if any: the first that does not wait for another."""
        if self.n_running >= self._max_running:
            return None
        return next((job for job in self.waiting if not waits(job)), None)

    def start(self, job: J) -> None:
        """The candidate got its memory: it computes its prompt from now on."""
        self.waiting.remove(job)
        self.prefilling.append(job)

    def generate(self, job: J) -> None:
        """The job's prompt is done: it generates from now on."""
        self.prefilling.remove(job)
        self.decoding.append(job)

    def put_back(self, job: J) -> None:
        """The job lost its memory: it starts again before all others that wait."""
        self.remove(job)
        self.waiting.appendleft(job)

    def remove(self, job: J) -> None:
        """The job has ended, wherever it is."""
        for place in (self.waiting, self.prefilling, self.decoding):
            if job in place:
                place.remove(job)

    def next(self) -> Prefill[J] | Decode[J] | None:
        """The next step; None: nothing runs. Call again only when the step is done."""
        if self.prefilling and not (self.decoding and self._prefilled_last):
            self._prefilled_last = True
            return Prefill(self._pieces())
        self._prefilled_last = False
        return Decode(tuple(self.decoding)) if self.decoding else None

    def _pieces(self) -> tuple[tuple[J, int], ...]:
        budget, pieces = self._step_tokens, []
        for job in tuple(self.prefilling):
            if budget == 0:
                break
            n = job.piece_tokens(budget)
            pieces.append((job, n))
            budget -= n
        self.prefilling.rotate(-len(pieces))
        return tuple(pieces)
