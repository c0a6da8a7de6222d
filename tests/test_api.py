"""`import octavo`: what is public, and what a loaded model does."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo import errors


@pytest.fixture(scope="module")
def model(tiny_file: Callable[..., Path]) -> Iterator[octavo.Session]:
    with octavo.load(tiny_file("llama"), context=256, sequences=2) as session:
        yield session


def test_all_is_complete() -> None:
    namespace = {name for name in vars(octavo) if not name.startswith("_")}
    modules = {name for name in namespace if inspect.ismodule(getattr(octavo, name))}
    imported = {"annotations", "Any", "TYPE_CHECKING"}
    assert set(octavo.__all__) >= namespace - modules - imported
    assert set(octavo._HOMES) <= set(octavo.__all__)
    assert octavo.__all__ == sorted(octavo.__all__)
    for name in octavo.__all__:
        value = getattr(octavo, name)
        assert value.__doc__, f"{name} has no docstring"
        assert name in dir(octavo)


def test_every_error_is_public() -> None:
    own = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, octavo.OctavoError)
    }
    assert own <= set(octavo.__all__)


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        octavo.lode  # noqa: B018


def test_public_methods_are_documented_and_typed() -> None:
    for name, method in inspect.getmembers(octavo.Session, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
            assert "return" in method.__annotations__, name


def test_generate_streams_what_it_returns(model: octavo.Session) -> None:
    whole = model.generate("The river", max_tokens=9, temperature=0)
    events = list(model.generate("The river", max_tokens=9, temperature=0, stream=True))
    assert "".join(e.text for e in events if isinstance(e, octavo.Content)) == whole.content
    assert whole.finish_reason in ("length", "stop")
    assert whole.usage.prompt_tokens == len(model.tokenize("The river"))


def test_same_seed_same_answer(model: octavo.Session) -> None:
    first, second = (
        model.chat("Say it.", max_tokens=12, seed=5, temperature=1.5).content for _ in range(2)
    )
    assert first == second


def test_messages_in_three_forms(model: octavo.Session) -> None:
    answers = {
        model.chat(messages, max_tokens=6, temperature=0).content
        for messages in (
            "Say it.",
            [{"role": "user", "content": "Say it."}],
            [octavo.Message("user", "Say it.")],
        )
    }
    assert len(answers) == 1


def test_json_schema_holds(model: octavo.Session) -> None:
    answer = model.chat("Say it.", json_schema={"enum": ["yes"]}, max_tokens=64, temperature=0)
    assert json.loads(answer.content) == "yes"


def test_wrong_arguments_are_named(model: octavo.Session) -> None:
    with pytest.raises(octavo.RequestError, match="temprature"):
        model.chat("Say it.", temprature=1)
    with pytest.raises(octavo.RequestError, match="text"):
        model.chat([{"role": "user", "text": "Say it."}])
    with pytest.raises(octavo.RequestError, match="top_p"):
        model.chat("Say it.", top_p=2.0)
    with pytest.raises(octavo.ContextFullError):
        model.chat("river " * 300)


def test_logits_agree_with_greedy_tokens(model: octavo.Session) -> None:
    ids = model.tokenize("The river was low that summer, and the ferry could not cross. " * 4)
    rows = np.concatenate(list(model.logits(ids, len(ids) - 70)))
    assert rows.shape == (70, model.n_vocab)
    (token,) = model.engine.submit(ids, octavo.SamplingParams(max_tokens=1, temperature=0)).ids()
    assert token == rows[-1].argmax()


def test_tokenize(model: octavo.Session) -> None:
    assert model.tokenizer.decode(model.tokenize("The ferry")) == "The ferry"
    assert len(model.tokenize("<|im_end|>", special=True)) == 1
    assert len(model.tokenize("<|im_end|>")) > 1


def test_deeper_reads_more(model: octavo.Session) -> None:
    assert model.bytes_per_token(0) == model.plan.read_bytes_per_token
    assert model.bytes_per_token(200) > model.bytes_per_token(100)


def test_embedding_a_chat_model_is_refused(model: octavo.Session) -> None:
    with pytest.raises(octavo.UnsupportedError, match="pooling"):
        model.embed("text")


def test_embeddings(tiny_file: Callable[..., Path]) -> None:
    path = tiny_file("qwen3", changes={"pooling_type": 3})
    with octavo.load(path, context=128, sequences=2) as model:
        rows = model.embed(["The river", "was low", "that summer"])
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(model.embed("was low")[0], rows[1], atol=1e-3)
        cut = model.embed("was low", dimensions=16)[0]
        expected = rows[1][:16] / np.linalg.norm(rows[1][:16])
        np.testing.assert_allclose(cut, expected, atol=1e-3)
        assert model.embed([]).shape == (0, rows.shape[1])


def test_wrong_wishes_are_named(tiny_file: Callable[..., Path]) -> None:
    path = tiny_file("llama")
    for wrong in ({"contxt": 5}, {"speculate": "yes"}, {"backend": "tpu"}, {"context": 10**9}):
        with pytest.raises(octavo.SettingError):
            octavo.load(path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(octavo.NotFoundError):
        octavo.load(path.with_name("absent.gguf"))


def test_closed_session_says_so(tiny_file: Callable[..., Path]) -> None:
    model = octavo.load(tiny_file("llama"), context=128, sequences=1)
    model.close()
    model.close()
    with pytest.raises(octavo.OctavoError, match="closed"):
        model.generate("The river")
