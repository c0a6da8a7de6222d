"""Grammars: what they allow is valid, whatever the model would like to say."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from octavo.engine.grammar import MAX_FRESH, Grammar, compile_grammar
from octavo.engine.sampler import Sampler
from octavo.errors import OctavoError, RequestError
from octavo.gguf.meta import Metadata
from octavo.text.tokenizer import Tokenizer
from octavo.types import GrammarSpec, SamplingParams
from scripted_model import LetterVocabulary, ScriptedModel, counting, make_engine
from tiny_models import as_metadata
from tiny_vocabulary import byte_level

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "bc", 'd"e']}, "maxItems": 3},
        "more": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["name", "age", "tags", "more"],
    "additionalProperties": False,
}
JSON_SPEC = GrammarSpec("json_schema", json.dumps(SCHEMA))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    metadata: Metadata = as_metadata(byte_level("qwen2"))
    return Tokenizer.from_metadata(metadata)


def speak(grammar: Grammar, vocabulary: Tokenizer | LetterVocabulary, seed: int) -> bytes:
    """What random logits say under the grammar."""
    rng = np.random.default_rng(seed)
    stops = frozenset(vocabulary.stop_ids)
    params = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed)
    sampler = Sampler(params, [], np.zeros(0, np.int32), grammar, stops)
    text = b""
    for _ in range(400):
        row = rng.standard_normal(vocabulary.vocab_size + 37).astype(np.float32)
        token = sampler.choose(row).id
        if token in stops:
            return text
        text += vocabulary.piece(token)
        if grammar.is_complete:
            return text
    pytest.fail(f"no end in {text!r}")


def check(value: dict[str, object]) -> None:
    assert list(value) == ["name", "age", "tags", "more"]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 12
    assert value["age"] in range(151)
    assert isinstance(value["tags"], list)
    assert len(value["tags"]) <= 3
    assert set(value["tags"]) <= {"a", "bc", 'd"e'}
    assert value["more"] in (None, True, False)


@pytest.mark.parametrize("seed", range(12))
def test_random_logits_say_valid_json(tokenizer: Tokenizer, seed: int) -> None:
    # JSON allows any white space; a schema without it ends within the 400 tokens.
    spec = GrammarSpec(
        "json_schema", json.dumps({**SCHEMA, "x-guidance": {"whitespace_flexible": False}})
    )
    check(json.loads(speak(compile_grammar(spec, tokenizer), tokenizer, seed)))


@pytest.mark.parametrize("seed", range(4))
def test_byte_tokens_say_valid_json_too(seed: int) -> None:
    vocabulary = LetterVocabulary(300)
    spec = GrammarSpec(
        "json_schema", json.dumps({**SCHEMA, "x-guidance": {"whitespace_flexible": False}})
    )
    check(json.loads(speak(compile_grammar(spec, vocabulary), vocabulary, seed)))


@pytest.mark.parametrize("seed", range(5))
def test_regex_and_lark(tokenizer: Tokenizer, seed: int) -> None:
    regex = r"[a-f]{2,5}-(yes|no|é)\.[0-9]{3}"
    said = speak(compile_grammar(GrammarSpec("regex", regex), tokenizer), tokenizer, seed)
    assert re.fullmatch(regex, said.decode())
    lark = 'start: "<" word ("," word){0,2} ">"\nword: /[xyz]{1,4}/'
    said = speak(compile_grammar(GrammarSpec("lark", lark), tokenizer), tokenizer, seed)
    assert re.fullmatch(r"<[xyz]{1,4}(,[xyz]{1,4}){0,2}>", said.decode())


def test_control_tokens_are_never_text(tokenizer: Tokenizer) -> None:
    grammar = compile_grammar(GrammarSpec("regex", r"(.|\n)*"), tokenizer)
    row = np.zeros(tokenizer.vocab_size + 5, np.float32)
    grammar.mask(row)
    controls = set(tokenizer.control_ids) - set(tokenizer.stop_ids)
    assert all(row[id] == -np.inf for id in controls)
    assert all(row[id] == 0 for id in tokenizer.stop_ids)
    assert np.all(row[tokenizer.vocab_size :] == -np.inf)


def test_rollback_restores_the_mask() -> None:
    vocabulary = LetterVocabulary(257)
    grammar = compile_grammar(GrammarSpec("regex", "abc|abd+"), vocabulary)
    masks = []
    for letter in "abd":
        row = np.zeros(257, np.float32)
        grammar.mask(row)
        masks.append(row)
        grammar.accept(ord(letter) + 1)
    grammar.rollback(2)
    row = np.zeros(257, np.float32)
    grammar.mask(row)
    np.testing.assert_array_equal(row, masks[1])
    assert np.flatnonzero(row == 0).tolist() == [ord("b") + 1]


def test_completeness() -> None:
    vocabulary = LetterVocabulary(257)
    grammar = compile_grammar(GrammarSpec("regex", "ab"), vocabulary)
    grammar.accept(ord("a") + 1)
    assert not grammar.is_complete
    grammar.accept(ord("b") + 1)
    assert grammar.is_complete


def test_wrong_token_is_an_error() -> None:
    grammar = compile_grammar(GrammarSpec("regex", "ab"), LetterVocabulary(257))
    with pytest.raises(OctavoError, match="grammar"):
        grammar.accept(ord("z") + 1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (GrammarSpec("json_schema", "{"), "json schema"),
        (GrammarSpec("json_schema", '{"type": "strange"}'), "strange"),
        (GrammarSpec("regex", "(a"), "unclosed"),
        (GrammarSpec("lark", "start: nothing"), "nothing"),
    ],
)
def test_wrong_grammars_say_what_is_wrong(spec: GrammarSpec, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        compile_grammar(spec, LetterVocabulary(257))


def test_engine_obeys_the_grammar() -> None:
    vocabulary = LetterVocabulary(300)
    model = ScriptedModel(counting, n_vocab=300)
    spec = GrammarSpec("regex", "[0-9]{3}(ab)*!")
    with make_engine(model, vocabulary=vocabulary) as engine:
        for seed in range(3):
            params = SamplingParams(temperature=2, seed=seed, grammar=spec)
            stream = engine.submit([50, 51], params)
            text = b"".join(vocabulary.piece(id) for id in stream.ids())
            assert stream.finish_reason == "stop"
            assert re.fullmatch(rb"[0-9]{3}(ab)*!", text)


def test_a_compiled_grammar_is_kept_fresh() -> None:
    """The second one of a text is a copy: what the first was fed is not in it."""
    vocabulary = LetterVocabulary(257)
    spec = GrammarSpec("regex", "a+kept!")
    one, two = compile_grammar(spec, vocabulary), compile_grammar(spec, vocabulary)
    one.accept_text("aakept!")
    assert one.is_complete
    assert not two.is_complete
    rows = []
    for grammar in (two, compile_grammar(spec, vocabulary)):
        row = np.zeros(257, np.float32)
        assert grammar.mask(row) == 1
        rows.append(np.flatnonzero(row == 0).tolist())
    assert rows == [[ord("a") + 1]] * 2
    for number in range(MAX_FRESH + 3):
        compile_grammar(GrammarSpec("regex", f"a{{{number + 1}}}b"), vocabulary)
    assert compile_grammar(spec, vocabulary).accept_text("akept!") > 0


@pytest.mark.parametrize("calm", [False, True])
def test_the_temperature_falls_where_a_calm_grammar_holds(calm: bool) -> None:
    """Few tokens allowed: always the likeliest. Many: as if half the temperature was asked for."""
    vocabulary = LetterVocabulary(257)

    def chosen(spec: GrammarSpec, temperature: float) -> list[int]:
        params = SamplingParams(
            temperature=temperature, top_k=0, top_p=1, min_p=0, seed=3, grammar=spec
        )
        grammar = compile_grammar(spec, vocabulary)
        sampler = Sampler(params, [], np.zeros(0, np.int32), grammar, frozenset({0}))
        rows = np.random.default_rng(5).standard_normal((40, 257)).astype(np.float32)
        return [sampler.choose(row).id for row in rows]

    few, many = "[a-f]{99}", r"(?s:.)*"
    likeliest = chosen(GrammarSpec("regex", few), 0)
    assert (chosen(GrammarSpec("regex", few, calm=calm), 5.0) == likeliest) == calm
    free = chosen(GrammarSpec("regex", many, calm=calm), 5.0)
    assert (free == chosen(GrammarSpec("regex", many), 2.5)) == calm
    assert (free == chosen(GrammarSpec("regex", many), 5.0)) != calm
