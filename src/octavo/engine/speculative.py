"""Drafts: cheap guesses at the next tokens, which one step of the model then checks together.

Guesses come from the model's own draft block or from the text so far. They never change the
output: at each place the sequence's sampler chooses from the model's logits as it would without
drafts, and goes on to the next place only while its choice is the guess.

Whether it pays depends on text, model and machine, so `Governor` measures and decides.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from octavo.engine.steps import Piece, Steps
from octavo.kv.cache import Timeline
from octavo.ops import Array
from octavo.record import dataclass

Source = Literal["mtp", "lookup", "forced"]  # forced: a grammar allows nothing else

LENGTHS = (1, 2, 4, 8)  # few, because each makes a step of another shape
NGRAM = 3  # tokens that must agree for a look-up
FLUSH_ROWS = 32  # hidden rows collected before the draft block reads them


@dataclass(frozen=True)
class DraftRule:
    """What to try. `always` drafts that many each time, without asking whether it pays."""

    sources: frozenset[Source] = frozenset({"mtp", "lookup"})
    max_tokens: int = 8
    always: int | None = None


NO_DRAFTS = DraftRule(frozenset())


def look_up(ids: NDArray[np.int32], n: int) -> list[int]:
    """What followed the latest earlier place with the same last NGRAM ids: up to n ids."""
    places = len(ids) - NGRAM
    if places <= 0 or n <= 0:
        return []
    same = ids[:places] == ids[places]
    for i in range(1, NGRAM):
        same &= ids[i : places + i] == ids[places + i]
    found = np.flatnonzero(same)
    if not len(found):
        return []
    start = int(found[-1]) + NGRAM
    return [int(id) for id in ids[start : start + n]]


@dataclass
class Trail:
    """What the draft block needs of one sequence.

    Positions below `n_filled` are in its cache. `before` holds the hidden states before the
    tokens from there on: one row more than there are tokens in the timeline beyond `n_filled`.
    """

    n_filled: int
    before: list[Array]


class DraftBlock:
    """Runs the model's own draft block and keeps its cache in step with the trunk's."""

    def __init__(self, steps: Steps, width: int) -> None:
        self._steps = steps
        self._width = width

    def begin(self, timeline: Timeline) -> Trail:
        """For a sequence whose first tokens may be reused.

        The state before the first new token is not kept with them, so zeros stand for it, as at
        position 0: one slot of the draft's cache is a little off, no output is.
        """
        return Trail(timeline.n_tokens, [np.zeros((1, self._width), np.float32)])

    def observe(self, trail: Trail, hidden: Array) -> None:
        """Note the trunk's states (n, D) of the tokens that the timeline was advanced by."""
        trail.before.append(hidden.copy())

    def catch_up(self, trail: Trail, timeline: Timeline, force: bool = False) -> None:
        """Fill the draft's cache up to the timeline, if that is worth a step or forced."""
        n = timeline.n_tokens - trail.n_filled
        if n <= 0 or (n < FLUSH_ROWS and not force):
            return
        rows = np.concatenate(trail.before)
        ids = timeline.ids[trail.n_filled :].tolist()
        self._steps.draft([Piece(timeline, trail.n_filled, ids)], rows[:n])
        trail.n_filled, trail.before = timeline.n_tokens, [rows[n:]]

    def propose(self, asked: Many[tuple[Trail, Timeline, int]], n: int) -> list[list[int]]:
        """n guesses for each (trail, timeline, latest token); room must have been reserved."""
        pieces = []
        for trail, timeline, latest in asked:
            ids = [*timeline.ids[trail.n_filled :].tolist(), latest]
            pieces.append(Piece(timeline, trail.n_filled, ids, 1))
        rows = np.concatenate([row for trail, _, _ in asked for row in trail.before])
        ends = np.cumsum([len(p.ids) for p in pieces]) - 1
        for trail, timeline, _ in asked:
            trail.n_filled, trail.before = timeline.n_tokens + 1, []
        same = len({len(p.ids) for p in pieces}) == 1
        out = self._steps.draft(pieces, rows, record=same)
        guesses = [[int(g)] for g in out.logits.argmax(axis=1)]
        for _ in range(n - 1):
            hidden = out.hidden[ends]
            pieces = [
                Piece(timeline, timeline.n_tokens + len(guess), guess[-1:], 1)
                for (_, timeline, _), guess in zip(asked, guesses, strict=True)
            ]
            out = self._steps.draft(pieces, hidden, record=True)
            ends = np.arange(len(asked))
            for guess, best in zip(guesses, out.logits.argmax(axis=1), strict=True):
                guess.append(int(best))
        return guesses


PRIOR = 0.6  # chance that a guess is right, before anything is known
MEMORY = 0.05  # weight of the newest observation
MIN_PLAIN = 4  # plain steps measured before anything is tried
REST_TOKENS = 128  # plain steps before drafting is tried again; doubles each time, up to
MAX_REST_TOKENS = 2048
PROBE_STEPS = 8
CHECK_STEPS = 64  # drafted steps until a plain one is measured again
GUESSED_COST = 0.1  # a token more in a step, as a share of a plain step, until it is measured


@dataclass
class Luck:
    """How often guesses of each source were right in one sequence."""

    chance: dict[Source, float] = field(default_factory=dict)

    def of(self, source: Source) -> float:
        return self.chance.get(source, PRIOR)

    def note(self, source: Source, n_drafted: int, n_accepted: int) -> None:
        for i in range(min(n_drafted, n_accepted + 1)):
            was = self.of(source)
            self.chance[source] = was + MEMORY * (float(i < n_accepted) - was)

    def expected(self, source: Source, n: int) -> float:
        """Tokens that n guesses are expected to add."""
        return sum(self.of(source) ** i for i in range(1, n + 1))


class Governor:
    """Chooses how many guesses to make, from measured times and luck.

    A step's time is known by its number of tokens, that of drafting by the number of guesses.
    """

    def __init__(self, rule: DraftRule) -> None:
        self._rule = rule
        self._step_seconds: dict[int, float] = {}
        self._draft_seconds: dict[int, float] = {}
        self._n_plain = 0
        self._n_drafted = 0
        self._n_probes = 0
        self._rest = REST_TOKENS

    def choose(self, options: Many[tuple[Luck, Source, int]], n_sequences: int) -> int:
        """Guesses for each sequence in the next step; 0: a plain step.

        `options` are those sequences that can have guesses: luck, source and most guesses.
        """
        if not options:
            return 0
        if self._rule.always is not None:
            return self._rule.always
        if self._n_probes:
            self._n_probes -= 1
            return LENGTHS[1]
        plain = self._step_seconds.get(n_sequences)
        if plain is None or self._n_plain < MIN_PLAIN:
            return self._rested(0)
        lengths = [
            n for n in LENGTHS if n <= min(self._rule.max_tokens, max(o[2] for o in options))
        ]
        best = max((0, *lengths), key=lambda n: self._rate(n, options, n_sequences, plain))
        return self._rested(best)

    def note(
        self, n_tokens: int, n_guesses: int, step_seconds: float, draft_seconds: float
    ) -> None:
        """One step of that many tokens took so long; `n_guesses` a sequence, 0: plain."""
        if not n_guesses:
            self._n_plain += 1
        _average(self._step_seconds, n_tokens, step_seconds)
        if n_guesses and draft_seconds:
            _average(self._draft_seconds, n_guesses, draft_seconds)

    def _rate(
        self,
        n: int,
        options: Many[tuple[Luck, Source, int]],
        n_sequences: int,
        plain: float,
    ) -> float:
        """Tokens a second with n guesses."""
        guesses = [min(n, most) for _, _, most in options]
        gained = sum(o[0].expected(o[1], g) for o, g in zip(options, guesses, strict=True))
        extra = sum(guesses)
        seconds = self._step_seconds.get(n_sequences + extra, plain * (1 + GUESSED_COST * extra))
        if n and any(source == "mtp" for _, source, _ in options):
            seconds += self._draft_seconds.get(n, plain * GUESSED_COST * n)
        return (n_sequences + gained) / max(seconds, 1e-9)

    def _rested(self, chosen: int) -> int:
        """Keep the other choice's measurements fresh: rarely, and rarer where it did not pay."""
        if chosen:
            self._n_plain, self._rest = MIN_PLAIN, REST_TOKENS
            self._n_drafted = (self._n_drafted + 1) % CHECK_STEPS
            return chosen if self._n_drafted else 0
        if self._n_plain >= self._rest:
            self._n_plain, self._n_probes = MIN_PLAIN, PROBE_STEPS
            self._rest = min(2 * self._rest, MAX_REST_TOKENS)
        return chosen


def _average(table: dict[int, float], key: int, value: float) -> None:
    """Newest weighs a fifth; the first counts whole."""
    table[key] = table[key] + 0.2 * (value - table[key]) if key in table else value
