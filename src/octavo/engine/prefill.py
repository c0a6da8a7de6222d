"""One prefill step: further tokens of some prompts."""

from __future__ import annotations

from collections.abc import Sequence as Many

from octavo.engine.sequence import Outcome, Sequence
from octavo.engine.speculative import DraftBlock
from octavo.engine.steps import Piece, Steps
from octavo.errors import OctavoError
from octavo.kv.prefix import PrefixStore
from octavo.ops import Array


class Prefilling:
    """Computes pieces of prompts; `prefixes` gets the states at the marks."""

    def __init__(
        self, steps: Steps, draft_block: DraftBlock | None, prefixes: PrefixStore | None
    ) -> None:
        self._steps = steps
        self._draft_block = draft_block
        self._prefixes = prefixes

    def run(self, work: Many[tuple[Sequence, int]]) -> list[Outcome]:
        """-> what became of those whose prompt is done now."""
        pieces = [_piece(job, n) for job, n in work]
        every = any(job.states is not None or job.trail is not None for job, _ in work)
        out = self._steps.run(pieces, every_hidden=every)
        outcomes, at, row = [], 0, 0
        for (job, n), piece in zip(work, pieces, strict=True):
            job.place.advance(piece.ids)
            if job.states is not None:
                job.states.append(out.hidden[at : at + n].copy())
            if job.trail is not None and self._draft_block is not None:
                self._draft_block.observe(job.trail, out.hidden[at : at + n])
            if self._prefixes is not None and job.place.n_tokens in job.marks:
                self._prefixes.snapshot(job.place)
            rows = out.logits[row : row + piece.n_outputs]
            if job.wants_scores:
                job.score(piece.start, rows)
            job.report()
            if job.place.n_tokens == len(job.ids):
                outcomes.append(_finish(job, rows[-1] if piece.n_outputs else None))
            at, row = at + n, row + piece.n_outputs
        self._fill_drafts(work)
        return outcomes

    def _fill_drafts(self, work: Many[tuple[Sequence, int]]) -> None:
        """After the tokens have been sent: the first one should not wait for this."""
        if self._draft_block is not None:
            for job, _ in work:
                if job.trail is not None:
                    self._draft_block.catch_up(job.trail, job.place, force=True)


def _piece(job: Sequence, n: int) -> Piece:
    start = job.place.n_tokens
    is_last = start + n == len(job.ids) and job.states is None
    return Piece(job.place, start, job.pending(n), n if job.wants_scores else int(is_last))


def _finish(job: Sequence, row: Array | None) -> Outcome:
    if row is None:
        return Outcome(job, "stop")
    try:
        return Outcome(job, job.choose(row))
    except OctavoError as error:
        return Outcome(job, "error", error)
