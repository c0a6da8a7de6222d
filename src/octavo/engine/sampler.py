"""A row of logits -> the next token, by the request's own rules and its own random numbers.

The rules run in llama.cpp's default order: logit bias, forbidden ids and grammar; repeat,
frequency and presence penalties; DRY; top-k; typical; top-p; min-p; temperature; draw.
Temperature 0 takes the largest logit after the penalties.

Vocabularies have up to 262K entries and NumPy needs 10 us or more for one pass over them, so the
usual chain makes about five passes and no sort: the k-th largest of some column maxima bounds the
k-th largest logit from below, and only the few entries above that bound are ordered.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from octavo.engine.grammar import Grammar
from octavo.engine.penalties import History, penalise_copies, penalise_repeats
from octavo.errors import OctavoError, RequestError
from octavo.types import SamplingParams, Token, TopLogprob

Row = NDArray[np.float32]
Ids = NDArray[np.int64]
Values = NDArray[np.float64]
Candidates = tuple[Ids, Values]  # token ids and their logits, best first

COLUMNS = 1024  # column maxima taken for a bound
NUCLEUS_DEPTHS = (3.0, 6.0, 9.0, 12.0, 16.0, math.inf)  # logits below the top, for top-p
MIN_TEMPERATURE = 1e-6
CALM = 0.5  # of the temperature is left where a calm grammar lets text be free
FEW_SHARE = 8  # where it leaves less than one in so many tokens, the likeliest is taken


class Sampler:
    """Chooses the tokens of one sequence, one after another.

    Args:
        params: the rules.
        prompt: ids before the first chosen token; the penalties see them.
        forbidden: ids never chosen.
        grammar: fed every chosen token that is no stop token; None: free text.
        stop_ids: tokens that end the sequence, which a grammar is not fed.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt: list[int],
        forbidden: NDArray[np.int32],
        grammar: Grammar | None = None,
        stop_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.grammar = grammar
        self._params = params
        self._stop_ids = stop_ids
        self._forbidden = forbidden
        self.history = History(prompt)
        self._random = np.random.Generator(np.random.PCG64(params.seed))
        self._bias_ids = np.array(list(params.logit_bias), np.int64)
        self._biases = np.array(list(params.logit_bias.values()), np.float32)

    def choose(self, row: Row) -> Token:
        """Choose from logits (V,) and remember the choice. The row is overwritten.

        Raises:
            RequestError: the rules leave no token.
            OctavoError: the logits hold NaN.
        """
        n_logprobs = self._params.n_logprobs
        raw = None if n_logprobs is None else row.copy()
        chosen = self._draw(row, self._apply_rules(row))
        self.history.add(chosen)
        if self.grammar is not None and chosen not in self._stop_ids:
            self.grammar.accept(chosen)
        if raw is None or n_logprobs is None:
            return Token(chosen)
        return with_logprobs(chosen, raw, n_logprobs)

    def _apply_rules(self, row: Row) -> float:
        """-> the temperature that holds for this row."""
        n_allowed = None
        if len(self._bias_ids):
            known = self._bias_ids < len(row)
            row[self._bias_ids[known]] += self._biases[known]
        if len(self._forbidden):
            row[self._forbidden] = -np.inf
        if self.grammar is not None:
            n_allowed = self.grammar.mask(row)
        penalise_repeats(row, self.history, self._params)
        penalise_copies(row, self.history, self._params)
        return self._temperature(n_allowed, len(row))

    def _temperature(self, n_allowed: int | None, n_vocab: int) -> float:
        """The one that was asked for, less of it where a calm grammar holds."""
        spec, asked = self._params.grammar, self._params.temperature
        if spec is None or not spec.calm or n_allowed is None:
            return asked
        return 0.0 if n_allowed * FEW_SHARE < n_vocab else asked * CALM

    def _draw(self, row: Row, temperature: float) -> int:
        best = int(row.argmax())
        top = float(row[best])
        if math.isnan(top):
            raise OctavoError("the model computed values that are no numbers", "Check its file.")
        if top == -math.inf:
            raise RequestError("no token is allowed here", "Loosen the grammar or the logit_bias.")
        if temperature == 0:
            return best
        scale = max(temperature, MIN_TEMPERATURE)
        u = float(self._random.random())
        if _keeps_all(self._params):
            return pick_of_all(row, top, scale, u)
        ids, x = candidates(row, top, self._params)
        return int(ids[_place_in(np.cumsum(np.exp((x - top) / scale)), u)[0]])


def _keeps_all(p: SamplingParams) -> bool:
    """Whether no rule cuts a row."""
    return not p.top_k and p.typical_p >= 1 and p.top_p >= 1 and p.min_p <= 0


def candidates(row: Row, top: float, p: SamplingParams) -> Candidates:
    """What top-k, typical, top-p and min-p leave of a row whose largest entry is `top`.

    Best first, except that a row which no rule cuts comes back whole and in id order.
    """
    if p.top_k or p.typical_p < 1:
        ids, x = largest(row, p.top_k or len(row))
        if p.typical_p < 1:
            ids, x = _typical(ids, x, p.typical_p)
        if p.top_p < 1:
            weights = np.exp(x - top)
            n = _nucleus_size(weights, p.top_p * float(weights.sum()))
            ids, x = ids[:n], x[:n]
    elif p.top_p < 1:
        ids, x = _nucleus_of_all(row, top, p.top_p)
    elif p.min_p > 0:
        ids = np.flatnonzero(row >= np.float32(top + math.log(p.min_p)))
        return _ordered(ids, row)
    else:
        return np.arange(len(row)), row.astype(np.float64)
    if p.min_p > 0:
        # The best in sight sets the bar: typical may have dropped the very best.
        keep = x >= float(x[0]) + math.log(p.min_p)
        ids, x = ids[keep], x[keep]
    return ids, x


def largest(row: Row, n: int) -> Candidates:
    """The n largest entries above -inf (fewer if there are not so many), best first.

    Of equal ones the lower id comes first.
    """
    bound = -math.inf
    if n <= COLUMNS // 2 and len(row) >= 4 * COLUMNS:
        whole = len(row) // COLUMNS * COLUMNS
        maxima = row[:whole].reshape(-1, COLUMNS).max(axis=0)
        bound = float(np.partition(maxima, COLUMNS - n)[COLUMNS - n])
    ids = np.flatnonzero(row >= bound if bound > -math.inf else row > -math.inf)
    ids, x = _ordered(ids, row)
    return ids[:n], x[:n]


def _ordered(ids: Ids, row: Row) -> Candidates:
    x = row[ids].astype(np.float64)
    order = np.argsort(-x, kind="stable")
    return ids[order], x[order]


def _nucleus_size(weights: Values, share: float) -> int:
    """How many of the weights, best first, reach `share` together; at least one."""
    return min(int(np.searchsorted(np.cumsum(weights), share)) + 1, len(weights))


def _nucleus_of_all(row: Row, top: float, top_p: float) -> Candidates:
    """Top-p over the whole row: only entries near the top are looked at, if they are enough."""
    share = top_p * float(np.exp(row - np.float32(top)).sum())
    for depth in NUCLEUS_DEPTHS:
        ids = np.flatnonzero(row >= np.float32(top - depth))
        weights = np.exp(row[ids] - top)
        if float(weights.sum()) >= share or depth == math.inf:
            break
    ids, x = _ordered(ids, row)
    n = _nucleus_size(np.exp(x - top), share)
    return ids[:n], x[:n]


def _typical(ids: Ids, x: Values, typical_p: float) -> Candidates:
    """Locally typical sampling (arXiv 2202.00666): nearest to the expected surprise first."""
    weights = np.exp(x - x[0])
    weights /= weights.sum()
    surprise = -np.log(np.maximum(weights, 1e-300))
    entropy = float((weights * surprise).sum())
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    total = np.cumsum(weights[order])
    n = min(int(np.searchsorted(total, typical_p, side="right")) + 1, len(order))
    kept = np.sort(order[:n])  # best first again
    return ids[kept], x[kept]


def pick_of_all(row: Row, top: float, scale: float, u: float) -> int:
    """The entry of a whole row (V,), overwritten, that u in [0, 1) draws at temperature `scale`.

    In place and in float32: passes that need new memory for V numbers cost more than what they
    compute. Sums of some columns are in float64 and tell where to look.
    """
    row -= np.float32(top)
    row *= np.float32(1 / scale)
    np.exp(row, out=row)
    starts = np.arange(0, len(row), COLUMNS)
    totals = np.cumsum(np.add.reduceat(row, starts), dtype=np.float64)
    block, share = _place_in(totals, u)
    first = int(starts[block])
    own = np.cumsum(row[first : first + COLUMNS], dtype=np.float64)
    return first + _place_in(own, share)[0]


def _place_in(totals: Values, u: float) -> tuple[int, float]:
    """The entry that u in [0, 1) falls into, by running sums, and how far in: 0 to 1.

    Never one without weight.
    """
    total = float(totals[-1])
    wanted = min(u * total, math.nextafter(total, 0))
    place = int(np.searchsorted(totals, wanted, side="right"))
    before = float(totals[place - 1]) if place else 0.0
    return place, (wanted - before) / (float(totals[place]) - before)


def with_logprobs(chosen: int, raw: Row, n: int) -> Token:
    """A token with its log-probability and the n likeliest ones, of logits (V,)."""
    top = raw.max()
    log_total = float(top) + math.log(float(np.exp(raw - top).sum()))
    ids, x = largest(raw, n) if n else (np.arange(0), np.zeros(0))
    best = tuple(TopLogprob(int(i), float(v) - log_total) for i, v in zip(ids, x, strict=True))
    return Token(chosen, float(raw[chosen]) - log_total, best)
