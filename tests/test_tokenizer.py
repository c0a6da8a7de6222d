"""Tokenizers: against recorded ids, the `tokenizers` package and plain spellings of the rules."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers
from typer.testing import CliRunner

import octavo.cli
from octavo import registry
from octavo.errors import FileFormatError, RequestError, UnsupportedError
from octavo.gguf.meta import Metadata, Typed
from octavo.gguf.reader import open_gguf
from octavo.text import pretokenizers
from octavo.text import special as special_module
from octavo.text.byte_alphabet import spell, unspell
from octavo.text.detokenizer import Detokenizer
from octavo.text.special import SpecialTexts
from octavo.text.spm import ranks
from octavo.text.tokenizer import Tokenizer, clean
from octavo.text.unicode_ranges import class_text
from octavo.text.unicode_regex import compile_for_ascii, compile_pattern
from octavo.text.vocabulary import NORMAL, Vocabulary
from tiny_vocabulary import byte_level
from vocabularies import bpe, bpe_values, metadata_of, reference_metadata, spm_values

RECORDED = (
    "gemma3",
    "qwen2",
    "qwen2-vocab-pre-gpt-2",
    "qwen2-vocab-pre-llama-bpe",
    "qwen2-vocab-pre-qwen35",
    "smollm2",
    "tiny-gemma3-swa",
    "tiny-llama-float",
    "tiny-llama-legacy",
    "tiny-qwen35moe-ud",
)

# The published rules as the `tokenizers` package wants them, written apart from ours.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_FRONT = r"[^\r\n\p{L}\p{N}]?"
_ASCII_SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
PUBLISHED: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt2": (_GPT2,),
    "llama-bpe": (
        rf"{_CONTRACTION}|{_FRONT}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_END}",
    ),
    "qwen2": (rf"{_CONTRACTION}|{_FRONT}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_END}",),
    "qwen35": (
        rf"{_CONTRACTION}|{_FRONT}[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_END}",
    ),
    "smollm": (r"\p{N}", _GPT2),
    "tekken": (
        rf"{_FRONT}{_UPPER}*{_LOWER}+|{_FRONT}{_UPPER}+{_LOWER}*"
        rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_END}",
    ),
    "gpt-4o": (
        rf"{_FRONT}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_FRONT}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_END}",
    ),
    "deepseek-coder": (
        r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}",
    ),
    "deepseek-v3": (
        r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
        rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_END}",
    ),
}  # fmt: skip

_TRICKY = "'s'T'Re'LL  \t\n\r\u00a0\u3000\x1c_-/.!?0123٣²½éÅñß́̈ا한가中文字ァ😀👍🏽\u200d\ufeff"
# Code points that every Unicode version here knows, so that the sides agree on their classes.
_anything = st.characters(exclude_categories=("Cs", "Cn", "Co"))
_letters = st.one_of(
    st.sampled_from(_TRICKY), st.characters(min_codepoint=32, max_codepoint=126), _anything
)
texts = st.text(_letters, max_size=60)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocab")


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_ids(name: str, vectors: Path, unpacked: Path) -> None:
    recorded = json.loads((vectors / "tokens" / f"{name}.json").read_text("utf-8"))
    metadata = reference_metadata(vectors, name, unpacked)
    if recorded["pre_overridden"]:
        entries = {key: metadata.typed(key) for key in metadata}
        metadata = Metadata({**entries, "tokenizer.ggml.pre": Typed("str", recorded["pre"])})
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.vocab_size == recorded["n_tokens"]
    assert sorted(tokenizer.stop_ids) == recorded["end_of_generation_ids"]
    assert tokenizer.pieces() == [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]
    assert tokenizer.encode("a") == recorded["plain_a"]
    assert tokenizer.encode("a", add_special=True) == recorded["add_special_turns_a_into"]
    assert _pieces_hash(tokenizer) == recorded["pieces_sha256"]
    wrong = [case["text"] for case in recorded["strings"] if not _agrees(tokenizer, case)]
    assert not wrong, wrong[:5]


def _pieces_hash(tokenizer: Tokenizer) -> str:
    whole = hashlib.sha256()
    for token in range(tokenizer.vocab_size):
        piece = tokenizer.piece(token)
        whole.update(len(piece).to_bytes(4, "little") + piece)
    return whole.hexdigest()


def _agrees(tokenizer: Tokenizer, case: dict[str, Any]) -> bool:
    def decode(ids: list[int], skip_special: bool = False) -> str:
        clean_spaces = tokenizer.clean_spaces
        return tokenizer.decode(ids, skip_special=skip_special, clean_spaces=clean_spaces)

    text, plain = case["text"], tokenizer.encode(case["text"])
    parsed = tokenizer.encode(text, parse_special=True)
    same = plain == case["ids"] and parsed == case.get("ids_parse_special", case["ids"])
    same = same and decode(plain) == case.get("detokenised", text)
    if "ids_parse_special" in case:
        same = same and decode(parsed) == case.get("detokenised_parse_special", text)
        same = same and decode(parsed, True) == case["detokenised_without_special"]
    return same


@cache
def _published_split(name: str) -> Callable[[str], list[str]]:
    steps = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in PUBLISHED[name]
    ]
    sequence = pre_tokenizers.Sequence(steps)
    return lambda text: [piece for piece, _ in sequence.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PUBLISHED)
@given(text=texts)
@example(text="_가 x_y _\u0301")
@example(text="it's IT'S 'ſ x\u0301 1234 \x1c \r\n\n  \t")
def test_words_are_cut_as_published(name: str, text: str) -> None:
    assert pretokenizers.load(name).split(text) == _published_split(name)(text)


def test_words_of_deepseek_llm() -> None:
    """By hand, as the list of cased letters is too long to write twice. The signs of the published
    rule (`:-~`) take in the ASCII letters, which therefore part from their neighbours.
    """
    split = pretokenizers.load("deepseek-llm").split
    assert split("Hello wörld 12ab 中文! \n ") == [
        *("Hello", " w", "ö", "rld", " ", "12", "ab", " ", "中文", "!", " ", "\n", " ")
    ]


@pytest.mark.parametrize("stem", registry.names("text.pretokenizers"))
@given(text=texts)
def test_cutting_loses_nothing(stem: str, text: str) -> None:
    assert "".join(pretokenizers.load(stem).split(text)) == text


@pytest.mark.parametrize(
    ("alias", "stem"),
    [
        ("deepseek-r1-qwen", "qwen2"),
        ("llama-v3", "llama_bpe"),
        ("llama3", "llama_bpe"),
        ("starcoder", "smollm"),
        ("gpt-2", "gpt2"),
        ("gpt-4o", "gpt_4o"),
    ],
)
def test_rules_are_found_by_other_names(alias: str, stem: str) -> None:
    assert pretokenizers.load(alias).name == stem


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="qwen9") as raised:
        pretokenizers.load("qwen9")
    assert "qwen2" in raised.value.hint


@pytest.mark.parametrize("category", ["N", "M", "P", "Lu"])
def test_ranges_hold_what_unicode_says(category: str) -> None:
    matches = compile_pattern(rf"\p{{{category}}}").fullmatch
    assigned = (chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs"))
    wrong = [
        char
        for char in assigned
        if bool(matches(char)) != unicodedata.category(char).startswith(category)
    ]
    assert not wrong, wrong[:5]
    assert class_text(category)


@cache
def _both(name: str) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Our tokenizer, and one of the package made from the same vocabulary."""
    values = byte_level(name)
    vocabulary = {text: i for i, text in enumerate(values["tokenizer.ggml.tokens"])}
    rule = pretokenizers.load(name)
    theirs = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[tuple(line.split(" ")) for line in values["tokenizer.ggml.merges"]],
            ignore_merges=rule.ignore_merges,
        )
    )
    steps = [pre_tokenizers.Split(tokenizers.Regex(p), "isolated") for p in PUBLISHED[name]]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
    return Tokenizer.from_metadata(metadata_of(values)), theirs


@pytest.mark.parametrize("name", registry.names("text.pretokenizers"))
@given(text=st.text(st.characters(max_codepoint=127), max_size=40))
@example("".join(map(chr, range(128))))
def test_short_patterns_cut_ascii_as_the_whole_ones(name: str, text: str) -> None:
    for pattern in pretokenizers.load(name).patterns:
        assert compile_for_ascii(pattern).split(text) == compile_pattern(pattern).split(text)


_WORDS = " the, river ferry people waited and talked about weather noon without 123 x=1\n\n Ünï"
_sentences = st.lists(
    st.one_of(st.sampled_from(_WORDS.split(" ")), st.text(_letters, max_size=4)), max_size=20
).map(" ".join)


@pytest.mark.parametrize("name", ["gpt2", "llama-bpe", "qwen2", "qwen35", "smollm", "tekken"])
@given(text=st.one_of(texts, _sentences))
def test_ids_are_those_of_the_package(name: str, text: str) -> None:
    ours, theirs = _both(name)
    # The tiny vocabulary has user-defined tokens; the package was given none.
    plain = text.replace("<think>", "").replace("</think>", "").replace("tool_call", "")
    assert ours.encode(plain) == theirs.encode(plain, add_special_tokens=False).ids


def _best_first(word: list[str], scores: dict[str, float]) -> list[str]:
    """SentencePiece's rule spelled out: the best pair of all, again and again."""
    while True:
        pairs = [
            (-scores[a + b], i)
            for i, (a, b) in enumerate(zip(word, word[1:], strict=False))
            if a + b in scores
        ]
        if not pairs:
            return word
        i = min(pairs)[1]
        word = [*word[:i], word[i] + word[i + 1], *word[i + 2 :]]


@cache
def _scored() -> tuple[Tokenizer, dict[str, float], dict[str, int]]:
    values = spm_values()
    bridge = ["e▁w", "▁▁", "▁▁▁", "e▁", "▁w"]  # tokens across a space, and runs of spaces
    values["tokenizer.ggml.tokens"] += bridge
    values["tokenizer.ggml.token_type"] += [1] * len(bridge)
    values["tokenizer.ggml.scores"] += [-3.0, -4.0, -5.0, -0.5, -50.0]
    tokens, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    rows = zip(tokens, kinds, values["tokenizer.ggml.scores"], strict=True)
    scores = {token: score for token, kind, score in rows if kind == 1}
    return (
        Tokenizer.from_metadata(metadata_of(values)),
        scores,
        {t: i for i, t in enumerate(tokens)},
    )


@given(st.one_of(texts, _sentences, st.text("ew ▁", max_size=30)))
def test_scored_ids_follow_the_rule(text: str) -> None:
    tokenizer, scores, ids = _scored()
    expected: list[int] = []
    for piece in _best_first(list(text.replace(" ", "▁")), scores):
        known = [ids[piece]] if piece in scores else [ids[f"<0x{b:02X}>"] for b in piece.encode()]
        expected += known
    assert tokenizer.encode(text) == expected
    assert tokenizer.decode(expected) == text.replace("▁", " ")


def test_the_better_a_score_the_lower_its_rank() -> None:
    scores = np.array([-7, 0.0, -0.0, 3.5, -np.inf, -7, 1e-30, np.inf, -1e30], np.float32)
    vocabulary = Vocabulary(["x"] * 9, np.full(9, NORMAL, np.int32), scores, {})
    found = ranks(vocabulary).tolist()
    assert np.unique(found, return_inverse=True)[1].tolist() == [4, 3, 3, 1, 6, 4, 2, 0, 5]
    assert found[4] == 2**32 - 1  # never made


def test_scored_words_never_become_control_tokens() -> None:
    values = spm_values(control=("ab",))
    values["tokenizer.ggml.tokens"] += ["a", "b"]
    values["tokenizer.ggml.token_type"] += [1, 1]
    values["tokenizer.ggml.scores"] += [0.0, 0.0]
    tokenizer = Tokenizer.from_metadata(metadata_of(values))
    control = tokenizer.token_id("ab")
    assert control not in tokenizer.encode("ab")
    assert tokenizer.encode("ab", parse_special=True) == [control]


def test_a_prefix_space_comes_and_goes() -> None:
    values = {**spm_values(control=("<x>",)), "tokenizer.ggml.add_space_prefix": True}
    tokenizer = Tokenizer.from_metadata(metadata_of(values))
    plain = Tokenizer.from_metadata(
        metadata_of({**values, "tokenizer.ggml.add_space_prefix": False})
    )
    assert tokenizer.encode("river") == plain.encode(" river")
    assert tokenizer.decode(tokenizer.encode("river")) == "river"
    assert tokenizer.decode(tokenizer.encode(" river")) == " river"
    # It comes back after each special token, as the format's own engine does it.
    mixed = tokenizer.encode("a<x>b", parse_special=True)
    assert mixed == [*plain.encode(" a"), tokenizer.token_id("<x>"), *plain.encode(" b")]


def _longest_first(text: str, ids: dict[str, int]) -> list[str | int]:
    """The rule spelled out: one special text after the other, over all that is left."""
    parts: list[str | int] = [text] if text else []
    for special in sorted(ids, key=len, reverse=True):
        cut: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                cut.append(part)
                continue
            for i, piece in enumerate(part.split(special)):
                cut += [ids[special]] * (i > 0) + [piece] * bool(piece)
        parts = cut
    return parts


@pytest.mark.parametrize("short_chars", [3, 32])
@given(
    text=st.text("ab<>", max_size=30),
    # Of different lengths: the order among equals is nowhere defined.
    specials=st.lists(st.text("ab<>", min_size=1, max_size=6), unique_by=len, max_size=6),
)
def test_special_texts_longest_first(text: str, specials: list[str], short_chars: int) -> None:
    ids = {text: i for i, text in enumerate(specials)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(special_module, "SHORT_CHARS", short_chars)
        matcher = SpecialTexts(ids)
        assert list(matcher.split(text)) == _longest_first(text, ids)
        found = [ids[text[start : start + length]] for start, length in matcher.find(text)]
        assert found == [part for part in matcher.split(text) if isinstance(part, int)]


def test_control_tokens_are_parsed_only_on_request() -> None:
    tokenizer = bpe()
    end, think = tokenizer.token_id("<|im_end|>"), tokenizer.token_id("<think>")
    assert end not in tokenizer.encode("<|im_end|>")
    assert tokenizer.encode("<|im_end|>", parse_special=True) == [end]
    assert tokenizer.encode("<think>") == [think]
    assert tokenizer.decode([think, end]) == "<think><|im_end|>"
    assert tokenizer.decode([think, end], skip_special=True) == "<think>"


def test_an_unmarked_special_text_is_plain() -> None:
    tokenizer = bpe()
    plain = tokenizer.encode("a <|im_end|> b")
    assert tokenizer.encode("a <#|im_end|> b", parse_special=True, unmark="#") == plain


def test_bos_and_eos_are_added_once() -> None:
    values = {**bpe_values(), "tokenizer.ggml.add_bos_token": True}
    values["tokenizer.ggml.add_eos_token"] = True
    tokenizer = Tokenizer.from_metadata(metadata_of(values))
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    ids = tokenizer.encode("river")
    assert tokenizer.encode("river", add_special=True) == [bos, *ids, eos]
    whole = tokenizer.encode("<|endoftext|>river<|im_end|>", parse_special=True, add_special=True)
    assert whole == [bos, *ids, eos]
    assert tokenizer.encode("", add_special=True) == [bos, eos]


@pytest.mark.parametrize(("pre", "adds"), [("llama-bpe", True), ("tekken", True), ("qwen2", False)])
def test_bos_by_default(pre: str, adds: bool) -> None:
    values = bpe_values(pre)
    del values["tokenizer.ggml.add_bos_token"]
    assert Tokenizer.from_metadata(metadata_of(values)).add_bos is adds


def test_a_whole_word_may_come_before_merges() -> None:
    for pre, expected in (("llama-bpe", 1), ("qwen2", 2)):
        values = bpe_values(pre)
        values["tokenizer.ggml.tokens"] += ["zq"]  # a token that no merge makes
        values["tokenizer.ggml.token_type"] += [1]
        assert len(Tokenizer.from_metadata(metadata_of(values)).encode("zq")) == expected


@given(texts)
def test_text_comes_back(text: str) -> None:
    tokenizer = _both("qwen35")[0]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.integers(0, 362), max_size=60))
def test_streamed_text_is_decoded_text(ids: list[int]) -> None:
    tokenizer = _both("qwen2")[0]
    stream = Detokenizer(tokenizer)
    streamed = "".join([stream.push(token) for token in ids] + [stream.finish()])
    assert streamed == tokenizer.decode(ids)


@pytest.mark.parametrize("hidden", [False, True])
def test_no_character_is_cut(hidden: bool) -> None:
    tokenizer = bpe("qwen2")
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    first, *rest = tokenizer.encode("😸")
    stream = Detokenizer(tokenizer, frozenset({end} if hidden else ()))
    assert stream.push(first) == ""
    if hidden:  # a token without text does not disturb the character around it
        assert stream.push(end) == ""
    assert [stream.push(token) for token in rest][-1] == "😸"
    assert stream.push(first) + stream.finish() == "\ufffd"


@given(st.binary(max_size=40))
def test_the_byte_alphabet_holds_every_byte(data: bytes) -> None:
    assert unspell(spell(data)) == data
    assert spell(data).isprintable()


def test_text_without_utf8_is_encoded() -> None:
    tokenizer = bpe()
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("😀")


def test_one_endless_word() -> None:
    """Time grows with n log n: this would take hours if it grew with the square."""
    tokenizer = bpe()
    assert tokenizer.decode(tokenizer.encode("ab" * 50_000)) == "ab" * 50_000


def test_decoding_needs_no_encoder() -> None:
    values = bpe_values()
    del values["tokenizer.ggml.merges"]
    tokenizer = Tokenizer.from_metadata(metadata_of(values))
    assert tokenizer.piece(tokenizer.token_id("Ġ") or 0) == b" "
    with pytest.raises(FileFormatError, match="merges"):
        tokenizer.encode("river")


def test_clean_spaces() -> None:
    assert clean("he 's here , is n't he ? ' quoted '") == "he's here, isn't he?'quoted '"
    assert bpe("llama-bpe").decode(bpe("llama-bpe").encode("x , y"), clean_spaces=True) == "x, y"


def test_ids_without_meaning_are_none() -> None:
    """Converters write -1 as an unsigned number, and sometimes name tokens that were cut off."""
    odd = {"bos": 2**32 - 1, "padding": 10**6, "eot": 10**6}
    more = {f"tokenizer.ggml.{name}_token_id": token for name, token in odd.items()}
    tokenizer = Tokenizer.from_metadata(metadata_of({**bpe_values(), **more}))
    assert tokenizer.bos_id is None
    assert tokenizer.stop_ids == bpe().stop_ids


def test_unused_tokens_are_named() -> None:
    tokenizer = Tokenizer.from_metadata(metadata_of(byte_level("qwen2", 400)))
    assert len(tokenizer.unused_ids) == 37
    assert tokenizer.piece(max(tokenizer.unused_ids)) == b""


@pytest.mark.parametrize("values", [bpe_values, spm_values])
@given(st.lists(st.text("aĠĀÿ▁é中 \0\udc80", max_size=6), max_size=6), st.integers(1, 6))
def test_all_pieces_at_once(values: Any, texts: list[str], kind: int) -> None:
    made = values()
    made["tokenizer.ggml.tokens"] += texts
    made["tokenizer.ggml.token_type"] += [kind] * len(texts)
    if "tokenizer.ggml.scores" in made:
        made["tokenizer.ggml.scores"] += [0.0] * len(texts)
    tokenizer = Tokenizer.from_metadata(metadata_of(made))
    assert tokenizer.pieces() == [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]


@pytest.mark.parametrize("token", [-1, 363, 10**9])
def test_ids_outside_the_vocabulary(token: int) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        bpe().piece(token)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("tokenizer.ggml.model", "bert", UnsupportedError),
        ("tokenizer.ggml.pre", "never-heard-of", UnsupportedError),
        ("tokenizer.ggml.eos_token_id", 10**6, FileFormatError),
        ("tokenizer.ggml.bos_token_id", 10**6, FileFormatError),
        ("tokenizer.ggml.token_type", [1, 2, 3], FileFormatError),
        ("tokenizer.ggml.scores", [0.5], FileFormatError),
        ("tokenizer.ggml.tokens", [1, 2], FileFormatError),
        ("tokenizer.ggml.tokens", "text", FileFormatError),
    ],
)
def test_contradictions_are_errors(key: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Tokenizer.from_metadata(metadata_of({**bpe_values(), key: value})).encode("river")


def _tokenize(*arguments: str, stdin: bytes = b"") -> str:
    result = CliRunner().invoke(octavo.cli.app, ["tokenize", *arguments], input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command(tiny_file: Callable[..., Path]) -> None:
    path = str(tiny_file("llama"))
    with open_gguf(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        text = "the river é<|im_end|>"
        ids = tokenizer.encode(text)
        special = tokenizer.encode(text, parse_special=True, add_special=True)
    shown = json.loads(_tokenize(path, text, "--json"))
    assert shown["ids"] == ids
    assert shown["count"] == len(shown["tokens"]) == len(ids)
    assert _tokenize(path, text, "--ids-only") == " ".join(map(str, ids)) + "\n"
    assert _tokenize(path, text, "--ids-only", "--special") == " ".join(map(str, special)) + "\n"
    assert _tokenize(path, "--ids-only", stdin=text.encode()) == _tokenize(path, text, "--ids-only")
    lines = _tokenize(path, text).splitlines()
    assert [int(line.split()[0]) for line in lines] == ids
    assert _tokenize(path, "é\n").split("'")[1::2] == ["\\xc3", "\\xa9", "\\n"]
