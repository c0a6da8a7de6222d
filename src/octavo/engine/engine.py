"""The engine: one thread that owns weights, caches and the step loop.

Everyone else talks to it with requests and events. It sees ids, never text.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.engine.decode import Decoding
from octavo.engine.embedding import Embedding
from octavo.engine.grammar import Vocabulary
from octavo.engine.intake import Intake
from octavo.engine.places import Places
from octavo.engine.prefill import Prefilling
from octavo.engine.rooms import Rooms
from octavo.engine.scheduler import Prefill, Scheduler
from octavo.engine.sequence import Outcome, Sequence
from octavo.engine.speculative import DraftBlock, DraftRule
from octavo.engine.stats import Stats
from octavo.engine.steps import Steps
from octavo.engine.stream import Stream
from octavo.errors import BusyError, CacheFullError, OctavoError
from octavo.kv.cache import Cache
from octavo.kv.prefix import PrefixStore
from octavo.models import Model
from octavo.types import FinishReason, SamplingParams

Result = TypeVar("Result")
DEFAULT_PARAMS = SamplingParams()
# Of silence until kept prefixes go to disk: a gigabyte is not to be written after every turn.
SAVE_SECONDS = 60.0


class Engine:
    """Runs requests on one model, several at once.

    Args:
        model, cache: belong to the engine's thread from now on.
        vocabulary: the tokenizer; without it no token ends an answer and grammars are refused.
        prefixes: finished sequences are kept there for later prompts; belongs to the thread too.
        max_running: most sequences that compute at the same time.
        max_waiting: most that wait besides.
        piece_tokens: most prompt tokens of one step. Small: generation stutters less; large:
            prompts are faster.
        drafts: what to guess with, and how far.
        between: called on the engine's thread after each step; see `Steps`.
    """

    def __init__(
        self,
        model: Model,
        cache: Cache,
        *,
        vocabulary: Vocabulary | None = None,
        prefixes: PrefixStore | None = None,
        max_running: int = 8,
        max_waiting: int = 256,
        piece_tokens: int = 512,
        drafts: DraftRule | None = None,
        between: Callable[[], None] | None = None,
    ) -> None:
        self.stats = Stats()
        self._config = model.config
        self._intake = Intake(model.config, cache, vocabulary)
        self._scheduler: Scheduler[Sequence] = Scheduler(max_running, piece_tokens)
        self.places = Places(max_running)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._places = threading.Semaphore(max_running + max_waiting)
        self._door = threading.Lock()  # held to enter the inbox, and to shut it
        self._is_closed = False
        self._may_admit = True  # something was freed since admission last failed
        rule = drafts or DraftRule()
        steps = Steps(model, cache, between, before=self._wake)
        has_block = model.config.n_mtp > 0 and "mtp" in rule.sources and rule.max_tokens > 0
        draft_block = DraftBlock(steps, model.config.n_embd) if has_block else None
        self._rooms = Rooms(cache, prefixes, self.places, draft_block)
        self._prefilling = Prefilling(steps, draft_block, prefixes)
        self._decoding = Decoding(steps, cache, draft_block, rule, self.stats)
        self._thread = threading.Thread(target=self._work, name="octavo-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        ids: Many[int],
        params: SamplingParams = DEFAULT_PARAMS,
        *,
        marks: Iterable[int] = (),
    ) -> Stream:
        """Generate after the prompt `ids`; returns at once. Any thread may call it.

        Args:
            marks: token counts of the prompt where another prompt may branch off.

        Raises:
            RequestError: the prompt is empty or an id is none of the model's.
            ContextFullError: the prompt fills the context.
            BusyError: too many requests wait.
        """
        self._intake.check(ids)
        if not self._places.acquire(blocking=False):
            raise BusyError("too many requests are waiting", "Try again in a while.")
        try:
            job = self._intake.sequence(ids, params, marks)
            self._enter(partial(self._scheduler.add, job))
        except BaseException:
            self._places.release()
            raise
        return Stream(job.mailbox)

    def embed(
        self,
        prompts: Many[Many[int]],
        pooling: str | None = None,
        cancelled: threading.Event | None = None,
    ) -> NDArray[np.float32]:
        """One vector for each prompt: its tokens' final states, pooled, not normalised.

        `pooling` is mean, cls or last; None: as the model's file says. Waits for the result:
        float32 (n, D). `cancelled`, set by another thread, ends it within one step.

        Raises:
            RequestError, ContextFullError: as `submit`.
            UnsupportedError, CancelledError: as `Embedding.vectors`.
        """
        for ids in prompts:
            self._intake.check(ids)
        embedding = Embedding(cancelled)
        for ids in prompts:
            self._places.acquire()
            job = embedding.add(self._intake.sequence(ids, DEFAULT_PARAMS, ()))
            self._enter(partial(self._scheduler.add, job))
        return embedding.vectors(pooling or self._config.pooling, self._config.n_embd)

    def call(self, work: Callable[[], Result]) -> Result:
        """Run something on the engine's thread, between two steps, and wait for it.

        Raises:
            OctavoError: the engine is closed; or what `work` raises.
        """
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self._enter(run)
        return done.result()

    def close(self) -> None:
        """Finish the step at hand, end all requests as cancelled, and join the thread."""
        with self._door:
            if not self._is_closed:
                self._is_closed = True
                self._inbox.put(lambda: None)
        self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _enter(self, message: Callable[[], None]) -> None:
        with self._door:
            if self._is_closed:
                raise OctavoError("the engine is closed", "Load the model again.")
            self._inbox.put(message)

    # From here on everything runs on the engine's thread.

    def _work(self) -> None:
        try:
            while not self._is_closed:
                self._receive()
                self._drop_cancelled()
                self._admit()
                self._step()
        except BaseException as error:  # a fault of ours: nobody may be left waiting
            self._shut(OctavoError(f"the engine stopped: {error!r}", "Please report this."))
            raise
        self._shut(None)

    def _receive(self) -> None:
        """Take in what has come; wait for it if there is nothing else to do."""
        self._count()
        idle = not self.stats.running and not self.stats.waiting
        if idle and self._inbox.empty():
            self._wait()
        if not self._inbox.empty():
            self._wake()  # who knows how long this takes
        while not self._inbox.empty():
            self._inbox.get()()
        self._count()

    def _wake(self) -> None:
        """Tell those who listen that something has come.

        Just before the model computes, which needs no Python: who is woken does, at once.
        """
        for job in self._scheduler.jobs:
            job.mailbox.call()

    def _wait(self) -> None:
        """Until something comes. What is kept is saved when nothing has come for a while."""
        if self._rooms.wants_saving:
            try:
                self._inbox.get(timeout=SAVE_SECONDS)()
            except queue.Empty:
                self._rooms.save(self._inbox.empty)
            return
        self._inbox.get()()

    def _count(self) -> None:
        self.stats.running = self._scheduler.n_running
        self.stats.waiting = len(self._scheduler.waiting)
        self.stats.cache = self._rooms.figures

    def _drop_cancelled(self) -> None:
        for job in self._scheduler.jobs:
            if job.mailbox.cancelled.is_set():
                self._end(Outcome(job, "cancelled"))

    def _admit(self) -> None:
        """Start those for whom there is a place and memory."""
        while (job := self._scheduler.candidate(self._has_twin)) and self._may_admit:
            try:
                self._rooms.open(job)
            except CacheFullError as error:
                if self._rooms.free_spares(self._scheduler.decoding):
                    continue
                if not self._scheduler.n_running:
                    self._end(Outcome(job, "error", error))
                    continue
                self._may_admit = False
                break
            if not job.n_generated:
                self.stats.cached_tokens += job.n_cached
            job.clock.started = job.clock.started or time.perf_counter()
            self._scheduler.start(job)

    def _has_twin(self, job: Sequence) -> bool:
        return self._rooms.has_twin(job, self._scheduler.prefilling)

    def _step(self) -> None:
        work = self._scheduler.next()
        if work is None:
            return
        if isinstance(work, Prefill):
            jobs = [job for job, _ in work.pieces]
            self._attempt(jobs, lambda: self._prefill(work.pieces))
        else:
            jobs = self._with_room(work.jobs)
            if jobs:
                self._attempt(jobs, lambda: self._decode(jobs))

    def _attempt(self, jobs: Many[Sequence], step: Callable[[], list[Outcome]]) -> None:
        """Run a step; if it fails, those in it fail and the others go on."""
        try:
            outcomes = step()
        except Exception as error:
            known = error if isinstance(error, OctavoError) else None
            fault = known or OctavoError(f"a step failed: {error!r}", "Please report this.")
            outcomes = [Outcome(job, "error", fault) for job in jobs]
        for outcome in outcomes:
            if outcome.finish is not None:
                self._end(outcome)
            elif outcome.job in self._scheduler.prefilling:
                self._scheduler.generate(outcome.job)

    def _prefill(self, pieces: Many[tuple[Sequence, int]]) -> list[Outcome]:
        began = time.perf_counter()
        outcomes = self._prefilling.run(pieces)
        self.stats.prefill_seconds += time.perf_counter() - began
        self.stats.prompt_tokens += sum(n for _, n in pieces)
        self.stats.prefill_steps += 1
        return outcomes

    def _decode(self, jobs: Many[Sequence]) -> list[Outcome]:
        began = time.perf_counter()
        before = sum(job.n_generated for job in jobs)
        outcomes = self._decoding.run(jobs)
        self.stats.decode_seconds += time.perf_counter() - began
        self.stats.generated_tokens += sum(job.n_generated for job in jobs) - before
        self.stats.decode_steps += 1
        return outcomes

    def _with_room(self, jobs: Many[Sequence]) -> list[Sequence]:
        """Reserve a token's room for each; where memory lacks, the youngest begins again."""
        for job in jobs:
            while job in self._scheduler.decoding:
                try:
                    job.place.reserve(1)
                    break
                except CacheFullError:
                    self._preempt()
        return [job for job in jobs if job in self._scheduler.decoding]

    def _preempt(self) -> None:
        running = [*self._scheduler.decoding, *self._scheduler.prefilling]
        youngest = max(running, key=lambda job: job.clock.submitted)
        if len(running) == 1:
            self._end(Outcome(youngest, "length"))
            return
        self._rooms.release(youngest, keep=True)
        self._scheduler.put_back(youngest)
        self._may_admit = False
        self.stats.preemptions += 1

    def _end(self, outcome: Outcome) -> None:
        job, finish = outcome.job, outcome.finish
        assert finish is not None, "only what has a reason ends"
        self._scheduler.remove(job)
        self._rooms.release(job, keep=finish != "error" and job.states is None)
        self._may_admit = True
        self.stats.requests[finish] = self.stats.requests.get(finish, 0) + 1
        self._places.release()
        job.end(finish, outcome.error)

    def _shut(self, fault: OctavoError | None) -> None:
        with self._door:
            self._is_closed = True
        while not self._inbox.empty():
            self._inbox.get()()
        finish: FinishReason = "error" if fault else "cancelled"
        for job in self._scheduler.jobs:
            self._scheduler.remove(job)
            self._rooms.release(job, keep=fault is None and job.states is None)
            job.end(finish, fault)
        if fault is None:
            self._rooms.save()
