"""One decode step: each sequence's latest token, and guesses at the next ones, checked at once."""

from __future__ import annotations

import time
from collections.abc import Sequence as Many

from octavo.engine.sequence import Outcome, Sequence
from octavo.engine.speculative import DraftBlock, DraftRule, Governor, Source, look_up
from octavo.engine.stats import Stats
from octavo.engine.steps import Piece, Steps
from octavo.errors import ContextFullError, OctavoError
from octavo.kv.cache import Cache
from octavo.ops import Array
from octavo.record import dataclass


@dataclass
class Guess:
    """Guessed ids and where they are from; `hint` is what the look-up would have said first."""

    source: Source
    ids: list[int]
    hint: int | None


class Decoding:
    """Runs decode steps, with guesses where they pay."""

    def __init__(
        self,
        steps: Steps,
        cache: Cache,
        draft_block: DraftBlock | None,
        rule: DraftRule,
        stats: Stats,
    ) -> None:
        self._steps = steps
        self._cache = cache
        self._draft_block = draft_block
        self._rule = rule
        self._governor = Governor(rule)
        self._stats = stats

    def run(self, jobs: Many[Sequence]) -> list[Outcome]:
        """Room for one token each must have been reserved."""
        began = time.perf_counter()
        guesses = self._guess(jobs)
        pieces = [self._piece(job, guess) for job, guess in zip(jobs, guesses, strict=True)]
        is_uniform = len({len(p.ids) for p in pieces}) == 1
        # The first step of a shape is recorded: its time says nothing about the next ones.
        is_timed = not is_uniform or not self._steps.will_record(pieces)
        drafted = time.perf_counter()
        out = self._steps.run(pieces, record=is_uniform)
        computed = time.perf_counter()
        if is_timed:
            n_guesses = max(len(guess.ids) for guess in guesses)
            n_tokens = sum(len(p.ids) for p in pieces)
            self._governor.note(n_tokens, n_guesses, computed - drafted, drafted - began)
        outcomes, at = [], 0
        for job, guess, piece in zip(jobs, guesses, pieces, strict=True):
            own = slice(at, at + len(piece.ids))
            outcomes.append(self._settle(job, guess, piece, out.logits[own], out.hidden[own]))
            at = own.stop
        self._stats.draft_seconds += drafted - began
        self._stats.sample_seconds += time.perf_counter() - computed
        return outcomes

    def _guess(self, jobs: Many[Sequence]) -> list[Guess]:
        """A guess for each job; no ids where there is no source, no room or no gain."""
        guesses = [self._look_up(job) for job in jobs]
        options = []
        for job, guess in zip(jobs, guesses, strict=True):
            most = self._most(job)
            is_better = job.luck.of(guess.source) >= job.luck.of("mtp")
            if job.trail is not None and not (guess.ids and is_better):
                guess.source, guess.ids = "mtp", []
            else:
                most = len(guess.ids)
            if most > 0:
                options.append((job.luck, guess.source, most))
        n = self._governor.choose(options, len(jobs))
        drafting: list[tuple[Sequence, Guess]] = []
        rooms = []
        for job, guess in zip(jobs, guesses, strict=True):
            wanted = min(n, self._most(job) if guess.source == "mtp" else len(guess.ids))
            room = self._room(job, wanted)
            guess.ids = guess.ids[:room]
            if guess.source == "mtp" and room:
                drafting.append((job, guess))
                rooms.append(room)
        drafted = self._drafts([job for job, _ in drafting], min(rooms, default=0))
        for (_, guess), ids in zip(drafting, drafted, strict=True):
            guess.ids = ids
        return guesses

    def _look_up(self, job: Sequence) -> Guess:
        grammar = job.sampler.grammar
        if grammar is not None and self._rule.sources and (forced := grammar.forced()):
            return Guess("forced", forced[: self._most(job)], None)
        if "lookup" not in self._rule.sources:
            return Guess("lookup", [], None)
        ids = look_up(job.sampler.history.last(-1), self._most(job))
        return Guess("lookup", ids, ids[0] if ids else None)

    def _most(self, job: Sequence) -> int:
        """Guesses beyond which there is nothing to gain."""
        return min(self._rule.max_tokens, job.n_left - 1)

    def _drafts(self, jobs: Many[Sequence], n: int) -> list[list[int]]:
        if not jobs or self._draft_block is None:
            return []
        asked = [(job.trail, job.place, job.ids[-1]) for job in jobs if job.trail is not None]
        return self._draft_block.propose(asked, n)

    def _room(self, job: Sequence, n: int) -> int:
        """How many guesses there is memory for, up to n; reserved."""
        if n <= 0:
            return 0
        if self._cache.recurrent:
            while len(job.spare_slots) < n and self._cache.slots.n_free:
                job.spare_slots.append(self._cache.take_slot())
            n = min(n, len(job.spare_slots))
        try:
            job.place.reserve(1 + n)
        except ContextFullError:
            return 0
        return n

    def _piece(self, job: Sequence, guess: Guess) -> Piece:
        ids = [job.ids[-1], *guess.ids]
        spare = job.spare_slots[: len(guess.ids)]
        slots = (*spare, job.place.slot) if self._cache.recurrent else ()
        return Piece(job.place, job.place.n_tokens, ids, len(ids), slots)

    def _settle(
        self, job: Sequence, guess: Guess, piece: Piece, rows: Array, hidden: Array
    ) -> Outcome:
        """Choose tokens, keep the guesses that agree, take back the rest."""
        job.place.advance(piece.ids)
        finish, n_right = None, 0
        try:
            for n_right, row in enumerate(rows):
                finish = job.choose(row)
                if finish or n_right == len(guess.ids) or job.ids[-1] != guess.ids[n_right]:
                    break
        except OctavoError as error:
            return Outcome(job, "error", error)
        self._count(job, guess, n_right)
        if guess.hint is not None and not (guess.source == "lookup" and guess.ids):
            # Known at no cost, so the look-up's luck is never out of date.
            job.luck.note("lookup", 1, int(job.ids[piece.start + 1 :][:1] == [guess.hint]))
        n_kept = 1 + n_right
        self._keep(job, piece, n_kept)
        if job.trail is not None and self._draft_block is not None:
            self._draft_block.observe(job.trail, hidden[:n_kept])
            self._draft_block.catch_up(job.trail, job.place)
        return Outcome(job, finish)

    def _keep(self, job: Sequence, piece: Piece, n_kept: int) -> None:
        """Of the piece's tokens only the first n_kept remain in the cache."""
        if n_kept == len(piece.ids):
            return
        end = piece.start + n_kept
        if self._cache.recurrent:
            job.spare_slots[n_kept - 1] = job.place.adopt(job.spare_slots[n_kept - 1], end)
        else:
            job.place.truncate(end)

    def _count(self, job: Sequence, guess: Guess, n_right: int) -> None:
        n_drafted = len(guess.ids)
        if n_drafted:
            job.luck.note(guess.source, n_drafted, n_right)
            job.n_drafted += n_drafted
            job.n_accepted += n_right
            self._stats.drafted_tokens += n_drafted
            self._stats.accepted_tokens += n_right
