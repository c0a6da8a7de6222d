"""One request while the engine has it: its tokens, its place in the cache, its clock."""

from __future__ import annotations

import time
from dataclasses import field

from octavo.engine.sampler import Sampler, with_logprobs
from octavo.engine.speculative import Luck, Trail
from octavo.engine.stream import Mailbox
from octavo.errors import OctavoError
from octavo.kv.cache import Timeline
from octavo.ops import Array
from octavo.record import dataclass
from octavo.types import FinishReason, PromptProgress, SamplingParams, Token, Usage

SCORE_TOKENS = 64  # of a prompt whose logits are wanted: they are all in memory at once


@dataclass
class Clock:
    """Moments of `time.perf_counter`; 0: not yet."""

    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0


@dataclass(eq=False)
class Sequence:
    """A `scheduler.Job`. Used by the engine thread alone, but for the mailbox.

    `ids` are the prompt and all chosen tokens. Those beyond `timeline.n_tokens` still have to
    be computed: many at first, one in each decode step.
    """

    ids: list[int]
    params: SamplingParams
    marks: tuple[int, ...]  # token counts, ascending: keep the recurrent state there
    sampler: Sampler
    stop_ids: frozenset[int]
    mailbox: Mailbox
    context: int  # most tokens of prompt and answer together
    timeline: Timeline | None = None
    states: list[Array] | None = None  # collects the hidden states (n, D), if they are wanted
    trail: Trail | None = None  # what the draft block knows; None: it is not used
    luck: Luck = field(default_factory=Luck)
    spare_slots: list[int] = field(default_factory=list)  # for states between guesses
    n_cached: int = 0
    reuse: tuple[str, str] | None = None  # cause and reason, as in `Usage`
    n_drafted: int = 0
    n_accepted: int = 0
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.n_prompt = len(self.ids)
        self._twin_key = hash(tuple(self.ids))

    def is_twin(self, other: Sequence) -> bool:
        """Whether both have the same prompt, and one of them is enough to compute it."""
        is_same = (self._twin_key, self.n_prompt) == (other._twin_key, other.n_prompt)
        alone = self.wants_scores or self.states is not None or bool(self.n_generated)
        return is_same and not alone

    def mark_end(self) -> None:
        """Keep the state before the prompt's last token: whoever goes on from there needs it."""
        self.marks = tuple(sorted({*self.marks, self.n_prompt - 1}))

    @property
    def place(self) -> Timeline:
        """The timeline of a running sequence."""
        assert self.timeline is not None, "the sequence does not run"
        return self.timeline

    @property
    def n_generated(self) -> int:
        return len(self.ids) - self.n_prompt

    @property
    def n_left(self) -> int:
        """Tokens that may still be generated."""
        room = self.context - len(self.ids)
        limit = self.params.max_tokens
        return room if limit < 0 else min(room, limit - self.n_generated)

    def piece_tokens(self, budget: int) -> int:
        done = self.place.n_tokens
        if self.wants_scores:
            budget = min(budget, SCORE_TOKENS)
        ends = [mark for mark in self.marks if mark > done][:1]
        return min(budget, min([*ends, len(self.ids)]) - done)

    @property
    def wants_scores(self) -> bool:
        """Whether log-probabilities of the prompt are wanted, which need all of its logits."""
        return self.params.prompt_logprobs and self.params.n_logprobs is not None

    def score(self, start: int, rows: Array) -> None:
        """Log-probabilities of the prompt's tokens behind positions `start` and on: rows (n, V)."""
        for at, row in enumerate(rows, start + 1):
            if at < self.n_prompt:
                token = with_logprobs(self.ids[at], row, self.params.n_logprobs or 0)
                self.mailbox.prompt_tokens.append(token)

    def report(self) -> None:
        """Tell how far the prompt is, if that was asked for."""
        if self.params.report_progress and not self.n_generated:
            seconds = time.perf_counter() - self.clock.started
            done = self.place.n_tokens
            self.mailbox.post(PromptProgress(self.n_prompt, self.n_cached, done, seconds))

    def pending(self, n: int) -> list[int]:
        """The next n ids to compute."""
        done = self.place.n_tokens
        return self.ids[done : done + n]

    def choose(self, row: Array) -> FinishReason | None:
        """Choose the next token from logits (V,) and send it. The row is overwritten.

        -> why the sequence ends with it, if it does.
        """
        if self.n_left <= 0:
            return "length"
        token = self.sampler.choose(row)
        if not self.clock.first_token:
            self.clock.first_token = time.perf_counter()
        if token.id in self.stop_ids:
            return "stop"
        self._send(token)
        grammar = self.sampler.grammar
        if grammar is not None and grammar.is_complete:
            return "stop"
        return "length" if self.n_left <= 0 else None

    def end(self, finish: FinishReason, error: OctavoError | None = None) -> None:
        """Tell the caller; the timeline is the engine's to keep or close."""
        self.clock.ended = time.perf_counter()
        self.mailbox.end(finish, self._usage(), error)

    def _send(self, token: Token) -> None:
        self.ids.append(token.id)
        self.mailbox.post(token)

    def _usage(self) -> Usage:
        c = self.clock
        started = c.started or c.ended
        first = c.first_token or c.ended
        return Usage(
            prompt_tokens=self.n_prompt,
            cached_tokens=self.n_cached,
            completion_tokens=self.n_generated,
            queue_seconds=started - c.submitted,
            prompt_seconds=first - started,
            generation_seconds=c.ended - first if c.first_token else 0.0,
            first_token_seconds=first - c.submitted if c.first_token else 0.0,
            drafted_tokens=self.n_drafted,
            accepted_tokens=self.n_accepted,
            reuse_cause=self.reuse[0] if self.reuse else "",
            reuse_reason=self.reuse[1] if self.reuse else "",
        )


@dataclass(frozen=True)
class Outcome:
    """What a step made of a sequence: why it ends, or None if it goes on."""

    job: Sequence
    finish: FinishReason | None
    error: OctavoError | None = None
