"""The native merge against its Python twin, and the twin against the `tokenizers` package."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models

from merging import byte_pair_ids, merge, scored_ids
from octavo import _native
from octavo.text.byte_alphabet import spell
from octavo.text.spm import PieceEncoder
from octavo.text.vocabulary import Vocabulary, packed
from vocabularies import bpe_values, metadata_of, spm_values

_MERGES = ["a b", "b c", "ab c", "a bc", "c c", "cc c", "abc abc", "a a", "aa a", "a aa", "aa aa"]
_ODD_LINES = ["a b", "ab", "a  b", " a", "a ", "", "é a", "Ġ a"]
_words = st.text("abcé ", min_size=1, max_size=80)


@given(st.text("abc", max_size=40), st.permutations(_MERGES))
def test_the_twin_merges_as_the_package(word: str, merges: list[str]) -> None:
    tokens = sorted({*"abc", *(line.replace(" ", "") for line in merges)})
    vocabulary = {token: i for i, token in enumerate(tokens)}
    made = [line for line in merges if all(part in vocabulary for part in line.split(" "))]
    theirs = models.BPE(vocab=vocabulary, merges=[tuple(line.split(" ")) for line in made])
    ranks = {line: rank for rank, line in enumerate(made)}
    ours = merge(list(word), lambda left, right: ranks.get(f"{left} {right}"))
    assert ours == [token.value for token in theirs.tokenize(word)]


def _byte_pairs(values: dict[str, Any], whole_words: bool) -> _native.BytePairMerger:
    lists = (values["tokenizer.ggml.tokens"], values["tokenizer.ggml.merges"])
    letters = list(spell(bytes(range(256))))
    tables = [_native.Strings(*packed(texts)) for texts in (*lists, letters)]
    return _native.BytePairMerger(*tables, whole_words)


@given(
    words=st.lists(_words, max_size=8),
    merges=st.permutations([*_MERGES, *_ODD_LINES]),
    # Not every step of a merge is a token, nor every letter; some tokens stand twice.
    tokens=st.lists(st.text("abcÃ©Ġ", max_size=4), max_size=30),
    whole_words=st.booleans(),
)
def test_byte_pairs_are_merged_as_by_the_twin(
    words: list[str], merges: list[str], tokens: list[str], whole_words: bool
) -> None:
    values = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges}
    merger = _byte_pairs(values, whole_words)
    expected = [token for w in words for token in byte_pair_ids(w, values, whole_words)]
    assert merger.encode(words) == expected
    assert merger.encode(words) == expected  # from memory


@given(st.lists(st.text(min_size=1, max_size=40), max_size=10))
def test_any_words_are_merged_as_by_the_twin(words: list[str]) -> None:
    values = bpe_values()
    merger = _byte_pairs(values, False)
    assert merger.encode(words) == [t for w in words for t in byte_pair_ids(w, values, False)]


_scores = st.one_of(
    st.sampled_from([0.0, -0.0, -1.0, 2.5, float("-inf"), float("inf")]),
    st.integers(-9, 9).map(float),
)
_rows = st.tuples(st.text("abé中▁ ", min_size=1, max_size=5), st.integers(1, 6), _scores)


@given(
    text=st.text("abé中 \n▁", max_size=60),
    rows=st.lists(_rows, min_size=1, max_size=40),
    has_bytes=st.booleans(),
    unknown=st.sampled_from([None, 0]),
)
@example(
    text="a b", rows=[("a", 1, 0.0), ("▁b", 1, 0.0), ("a▁b", 3, 9.0)], has_bytes=True, unknown=0
)
def test_scores_are_followed_as_by_the_twin(
    text: str, rows: list[tuple[str, int, float]], has_bytes: bool, unknown: int | None
) -> None:
    rows = rows + [(f"<0x{byte:02X}>", 6, 0.0) for byte in range(256 if has_bytes else 0)]
    names = ("tokens", "token_type", "scores")
    columns = zip(names, map(list, zip(*rows, strict=True)), strict=True)
    values: dict[str, Any] = {f"tokenizer.ggml.{name}": column for name, column in columns}
    if unknown is not None:
        values["tokenizer.ggml.unknown_token_id"] = unknown
    encoder = PieceEncoder(Vocabulary.from_metadata(metadata_of(values)))
    assert encoder.encode(text) == encoder.encode(text) == scored_ids(text, values)


@given(st.text(max_size=200))
def test_any_text_is_scored_as_by_the_twin(text: str) -> None:
    values = spm_values()
    encoder = PieceEncoder(Vocabulary.from_metadata(metadata_of(values)))
    assert encoder.encode(text) == scored_ids(text, values)


def test_long_text_in_many_threads() -> None:
    """Mergers hold scratch and a memory; callers take turns."""
    values = bpe_values()
    merger = _byte_pairs(values, False)
    lists = [[f" word{n % k}" for n in range(4000)] for k in (1, 7, 33, 257, 3001)]
    expected = [[t for w in words for t in byte_pair_ids(w, values, False)] for words in lists]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(merger.encode, lists)) == expected


def test_words_without_utf8_are_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        _byte_pairs(bpe_values(), False).encode(["a", "\ud800"])


@pytest.mark.parametrize("starts", [[], [0, 2, 1, 3], [-1, 3], [0, 4], [-(1 << 63), 1 << 62]])
def test_starts_that_lie_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="starts"):
        _native.Strings(np.zeros(3, np.uint8), np.array(starts, np.int64), 0)


@pytest.mark.parametrize(("starts", "gap"), [([0, 2, 3], 2), ([0, 3], -1), ([0, 3], 1 << 40)])
def test_gaps_without_room_are_refused(starts: list[int], gap: int) -> None:
    with pytest.raises(ValueError, match="gap"):
        _native.Strings(np.zeros(3, np.uint8), np.array(starts, np.int64), gap)


def test_lists_of_another_length_are_refused() -> None:
    tokens = _native.Strings(*packed(["a", "b"]))
    ranks, ids = np.zeros(2, np.uint32), np.zeros(256, np.int32)
    with pytest.raises(ValueError, match="ranks"):
        _native.ScoreMerger(tokens, ranks[:1], ids)
    with pytest.raises(ValueError, match="byte_ids"):
        _native.ScoreMerger(tokens, ranks, ids[:255])
    with pytest.raises(ValueError, match="256"):
        _native.BytePairMerger(tokens, tokens, tokens, False)
