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
        sources, guesses = self._guess(jobs)
        pieces = [self._piece(job, guess) for job, guess in zip(jobs, guesses, strict=True)]
        is_uniform = len({len(p.ids) for p in pieces}) == 1
        is_timed = not is_uniform or self._steps.is_recorded(pieces)
        drafted = time.perf_counter()
        out = self._steps.run(pieces, record=is_uniform)
        computed = time.perf_counter()
        if is_timed:
            n_guesses = max(len(g) for g in guesses)
            n_tokens = sum(len(p.ids) for p in pieces)
            self._governor.note(n_tokens, n_guesses, computed - drafted, drafted - began)
        outcomes, at = [], 0
        for job, source, piece in zip(jobs, sources, pieces, strict=True):
            end = at + len(piece.ids)
            outcomes.append(
                self._settle(job, source, piece, out.logits[at:end], out.hidden[at:end])
            )
            at = end
        self._stats.draft_seconds += drafted - began
        self._stats.sample_seconds += time.perf_counter() - computed
        return outcomes

    def _guess(self, jobs: Many[Sequence]) -> tuple[list[Source], list[list[int]]]:
        """Source and guesses of each job; no guesses where there is no source or no room."""
        found: list[list[int]] = [[] for _ in jobs]
        sources: list[Source] = ["lookup" for _ in jobs]
        options = []
        for i, job in enumerate(jobs):
            most = min(self._rule.max_tokens, job.n_left - 1)
            if "lookup" in self._rule.sources:
                found[i] = look_up(job.sampler.history.last(-1), most)
            if job.trail is not None and not (
                found[i] and job.luck.of("lookup") >= job.luck.of("mtp")
            ):
                sources[i], found[i] = "mtp", []
            most = most if sources[i] == "mtp" else len(found[i])
            if most > 0:
                options.append((job.luck, sources[i], most))
        n = self._governor.choose(options, len(jobs))
        room = [self._room(job, min(n, job.n_left - 1)) for job in jobs]
        guesses = [f[:r] for f, r in zip(found, room, strict=True)]
        drafting = [i for i, s in enumerate(sources) if s == "mtp" and room[i] > 0]
        n = min((room[i] for i in drafting), default=0)
        for i, guess in zip(drafting, self._drafts([jobs[i] for i in drafting], n), strict=True):
            guesses[i] = guess
        return sources, guesses

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

    def _piece(self, job: Sequence, guess: list[int]) -> Piece:
        slots = (*job.spare_slots[: len(guess)], job.place.slot) if self._cache.recurrent else ()
        return Piece(job.place, job.place.n_tokens, [job.ids[-1], *guess], 1 + len(guess), slots)

    def _settle(
        self, job: Sequence, source: Source, piece: Piece, rows: Array, hidden: Array
    ) -> Outcome:
        """Choose tokens, keep the guesses that agree, take back the rest."""
        guess = piece.ids[1:]
        job.place.advance(piece.ids)
        finish, n_right = None, 0
        try:
            for n_right, row in enumerate(rows):
                finish = job.choose(row)
                if finish or n_right == len(guess) or job.ids[-1] != guess[n_right]:
                    break
        except OctavoError as error:
            return Outcome(job, "error", error)
        self._count(job, source, len(guess), n_right)
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

    def _count(self, job: Sequence, source: Source, n_drafted: int, n_right: int) -> None:
        if n_drafted:
            job.luck.note(source, n_drafted, n_right)
            job.n_drafted += n_drafted
            job.n_accepted += n_right
            self._stats.drafted_tokens += n_drafted
            self._stats.accepted_tokens += n_right
