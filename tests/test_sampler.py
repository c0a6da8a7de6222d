"""The sampler against a plain twin that sorts everything and loops."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.penalties import MAX_REPEAT, History, repeats
from octavo.engine.sampler import Sampler, candidates, largest, pick_of_all
from octavo.errors import OctavoError, RequestError
from octavo.types import SamplingParams

NOTHING = np.zeros(0, np.int32)
PLAIN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=1)


def sampler(
    params: SamplingParams, prompt: list[int] | None = None, forbidden: Any = NOTHING
) -> Sampler:
    return Sampler(params, prompt or [], np.asarray(forbidden, np.int32))


# The twin: probabilities of all tokens, by the book.


def twin(row: np.ndarray, p: SamplingParams, history: list[int]) -> dict[int, float]:
    x = [float(v) for v in row]
    for id, bias in p.logit_bias.items():
        x[id] += bias
    recent = history if p.repeat_last_n < 0 else history[len(history) - p.repeat_last_n :]
    for id, count in Counter(recent if p.repeat_last_n else []).items():
        x[id] = x[id] / p.repeat_penalty if x[id] > 0 else x[id] * p.repeat_penalty
        x[id] -= count * p.frequency_penalty + p.presence_penalty
    for id, length in slow_repeats(history, p.dry_breakers).items():
        if p.dry_multiplier and length >= p.dry_allowed_length:
            x[id] -= p.dry_multiplier * p.dry_base ** (length - p.dry_allowed_length)
    left = sorted((id for id in range(len(x)) if x[id] > -math.inf), key=lambda id: (-x[id], id))
    if p.top_k:
        left = left[: p.top_k]
    if p.typical_p < 1:
        q = shares(x, left)
        entropy = -sum(v * math.log(v) for v in q.values() if v)
        by_surprise = sorted(left, key=lambda id: abs(-math.log(q[id]) - entropy))
        left = [id for id in left if id in until(by_surprise, q, p.typical_p)]
    if p.top_p < 1:
        left = until(left, shares(x, left), p.top_p)
    if p.min_p > 0:
        left = [id for id in left if x[id] >= x[left[0]] + math.log(p.min_p)]
    return shares([v / p.temperature for v in x], left)


def shares(x: list[float], ids: list[int]) -> dict[int, float]:
    weights = {id: math.exp(x[id] - x[ids[0]]) for id in ids}
    total = sum(weights.values())
    return {id: w / total for id, w in weights.items()}


def until(ids: list[int], q: dict[int, float], p: float) -> list[int]:
    total = 0.0
    for n, id in enumerate(ids, 1):
        total += q[id]
        if total >= p:
            return ids[:n]
    return ids


def slow_repeats(ids: list[int], breakers: frozenset[int]) -> dict[int, int]:
    longest: dict[int, int] = {}
    for end in range(len(ids) - 1):
        n = 0
        while n <= end and ids[end - n] == ids[len(ids) - 1 - n] not in breakers:
            n += 1
        if n:
            longest[ids[end + 1]] = max(longest.get(ids[end + 1], 0), n)
    return longest


def fast(row: np.ndarray, p: SamplingParams, history: list[int]) -> dict[int, float]:
    """Probabilities of the sampler, from its candidates."""
    row = row.copy()
    one = sampler(p, history)
    one._apply_rules(row)
    ids, x = candidates(row, float(row.max()), p)
    w = np.exp((x - x.max()) / p.temperature)
    return {int(i): float(v) for i, v in zip(ids, w / w.sum(), strict=True) if v > 0}


CHAINS = {
    "none": {},
    "usual": {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "top_k": {"top_k": 7},
    "top_k beyond": {"top_k": 10**6},
    "top_p": {"top_p": 0.7},
    "top_p of all": {"top_p": 0.999},
    "min_p": {"min_p": 0.02},
    "typical": {"typical_p": 0.6},
    "typical of top_k": {"typical_p": 0.8, "top_k": 50, "top_p": 0.9},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": -0.3},
    "all back": {"repeat_penalty": 1.5, "repeat_last_n": -1, "top_k": 20},
    "none back": {"repeat_penalty": 1.5, "repeat_last_n": 0, "top_k": 20},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "top_k": 20},
    "dry broken": {"dry_multiplier": 0.8, "dry_breakers": frozenset({3}), "top_k": 20},
    "bias": {"logit_bias": {3: 5.0, 4: -math.inf, 6: -1}, "top_k": 5},
    "cold": {"temperature": 0.05},
    "hot": {"temperature": 9.0, "top_k": 30, "min_p": 0.01},
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("n_vocab", [7, 257, 4500])
def test_probabilities_equal_the_twin(chain: str, n_vocab: int, rng: np.random.Generator) -> None:
    params = replace(PLAIN, **CHAINS[chain])
    for spread in (0.5, 3):
        row = (spread * rng.standard_normal(n_vocab)).astype(np.float32)
        history = rng.integers(0, 7, 90).tolist()
        expected = {id: v for id, v in twin(row, params, history).items() if v > 1e-30}
        got = {id: v for id, v in fast(row, params, history).items() if v > 1e-30}
        assert got.keys() == expected.keys()
        for id, v in expected.items():
            assert got[id] == pytest.approx(v, rel=1e-4)


def test_draws_follow_the_probabilities(rng: np.random.Generator) -> None:
    row = rng.standard_normal(50).astype(np.float32)
    params = replace(PLAIN, top_k=8, temperature=1.3)
    n = 4000
    one = sampler(params)
    drawn = Counter(one.choose(row.copy()).id for _ in range(n))
    expected = twin(row, params, [])
    assert drawn.keys() <= expected.keys()
    chi2 = sum((drawn[id] - n * q) ** 2 / (n * q) for id, q in expected.items())
    assert chi2 < 24.3  # 7 degrees of freedom: 1 in 1000


def test_whole_vocabulary_is_drawn_from(rng: np.random.Generator) -> None:
    one = sampler(PLAIN)
    assert {one.choose(np.zeros(5, np.float32)).id for _ in range(200)} == set(range(5))


@pytest.mark.parametrize("n_vocab", [1, 1024, 5001])
def test_draws_from_all_follow_the_running_sums(n_vocab: int, rng: np.random.Generator) -> None:
    row = (3 * rng.standard_normal(n_vocab)).astype(np.float32)
    row[1::3] = -np.inf
    shares = np.cumsum(np.exp((row - row.max()) / 0.7, dtype=np.float64))
    shares /= shares[-1]
    for u in (0.0, *rng.random(50), 1 - 2**-53):
        chosen = pick_of_all(row.copy(), float(row.max()), 0.7, float(u))
        assert row[chosen] > -np.inf
        assert shares[chosen] > u - 1e-5
        assert chosen == 0 or shares[chosen - 1] < u + 1e-5


def test_greedy_takes_the_largest_after_the_rules() -> None:
    row = np.array([1, 5, 4, 2], np.float32)
    greedy = SamplingParams(temperature=0, repeat_penalty=2)
    assert sampler(greedy).choose(row.copy()).id == 1
    assert sampler(greedy, [1]).choose(row.copy()).id == 2
    assert sampler(replace(greedy, logit_bias={3: 9.0})).choose(row.copy()).id == 3
    assert sampler(greedy, forbidden=[1, 2]).choose(row.copy()).id == 3
    assert sampler(greedy).choose(np.zeros(4, np.float32)).id == 0


def test_choices_are_remembered() -> None:
    one = sampler(SamplingParams(temperature=0, presence_penalty=2))
    row = np.array([5, 4, 3.5], np.float32)
    assert [one.choose(row.copy()).id for _ in range(4)] == [0, 1, 2, 0]


def test_same_seed_same_tokens(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((30, 300)).astype(np.float32)

    def run(seed: int | None) -> list[int]:
        one = sampler(SamplingParams(seed=seed))
        return [one.choose(row.copy()).id for row in rows]

    assert run(5) == run(5)
    assert run(5) != run(6)
    assert run(None) != run(None)


def test_forbidden_ids_are_never_chosen() -> None:
    one = sampler(PLAIN, forbidden=np.arange(1, 300))
    row = np.linspace(0, 20, 300).astype(np.float32)
    assert {one.choose(row.copy()).id for _ in range(20)} == {0}


def test_biases_beyond_the_vocabulary_do_nothing() -> None:
    greedy = SamplingParams(temperature=0, logit_bias={99: 50.0})
    assert sampler(greedy).choose(np.array([0, 1], np.float32)).id == 1


def test_impossible_rows_are_errors() -> None:
    row = np.zeros(4, np.float32)
    with pytest.raises(RequestError, match="no token"):
        sampler(PLAIN, forbidden=[0, 1, 2, 3]).choose(row.copy())
    row[2] = np.nan
    for params in (PLAIN, SamplingParams(), SamplingParams(temperature=0)):
        with pytest.raises(OctavoError, match="no numbers"):
            sampler(params).choose(row.copy())


@pytest.mark.parametrize("n", [0, 1, 5])
def test_logprobs_are_of_the_raw_distribution(n: int, rng: np.random.Generator) -> None:
    row = (4 * rng.standard_normal(5000)).astype(np.float32)
    exact = row.astype(np.float64) - np.log(np.exp(row.astype(np.float64)).sum())
    params = SamplingParams(n_logprobs=n, logit_bias={3: 100.0}, temperature=0.5, seed=0)
    token = sampler(params).choose(row.copy())
    assert token.id == 3
    assert token.logprob == pytest.approx(exact[3], abs=1e-4)
    assert [t.id for t in token.top_logprobs] == np.argsort(-exact)[:n].tolist()
    assert [t.logprob for t in token.top_logprobs] == pytest.approx(
        np.sort(exact)[::-1][:n], abs=1e-4
    )


def test_no_logprobs_unless_asked() -> None:
    token = sampler(PLAIN).choose(np.zeros(4, np.float32))
    assert token.logprob is None
    assert token.top_logprobs == ()


@pytest.mark.parametrize("n_vocab", [1, 33, 4096, 5000])
@pytest.mark.parametrize("n", [1, 40, 257, 10_000])
def test_largest_equals_a_sort(n_vocab: int, n: int, rng: np.random.Generator) -> None:
    for row in (
        rng.standard_normal(n_vocab),
        rng.integers(0, 3, n_vocab),
        np.where(rng.random(n_vocab) < 0.99, -np.inf, rng.standard_normal(n_vocab)),
        np.arange(n_vocab)[::-1],
    ):
        row = row.astype(np.float32)
        order = np.argsort(-row, kind="stable")
        expected = [i for i in order if row[i] > -np.inf][:n]
        ids, x = largest(row, n)
        assert ids.tolist() == expected
        assert x.tolist() == row[expected].tolist()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40), st.frozensets(st.integers(0, 3), max_size=2))
def test_repeats_equal_the_slow_search(ids: list[int], breakers: frozenset[int]) -> None:
    if len(ids) < 2:
        return
    found, lengths = repeats(np.array(ids, np.int32), breakers)
    assert dict(zip(found.tolist(), lengths.tolist(), strict=True)) == slow_repeats(ids, breakers)


def test_endless_repeats_are_cut() -> None:
    found, lengths = repeats(np.zeros(5000, np.int32), frozenset())
    assert (found.tolist(), lengths.tolist()) == ([0], [MAX_REPEAT])


def test_history_grows() -> None:
    history = History([1, 2])
    for i in range(200):
        history.add(i)
    assert history.last(3).tolist() == [197, 198, 199]
    assert history.last(-1).tolist() == [1, 2, *range(200)]
    assert history.last(0).tolist() == []
    assert History([]).last(5).tolist() == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -1}, "temperature is a number from 0"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top_k is a whole number from 0"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_p": 1.1}, r"top_p is a number from 0\.0 to 1\.0"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"n_logprobs": 101}, "n_logprobs is a whole number from 0 to 100"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"top_p": True}, "top_p"),
        ({"logit_bias": {-1: 0.0}}, "logit_bias"),
        ({"logit_bias": {1: math.nan}}, "logit_bias"),
    ],
)
def test_wrong_parameters_name_their_range(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        SamplingParams(**values)
