"""What llama.cpp's and OpenAI's clients ask for besides: progress, counts, infilling, echoes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import octavo
from octavo.engine.engine import Engine
from octavo.errors import UnsupportedError
from octavo.text.infill import Infill
from octavo.text.tokenizer import Tokenizer
from octavo.types import PromptProgress, SamplingParams, Token
from scripted_model import ScriptedModel, counting, make_engine
from serving import END, PLAIN, ScriptedSession, serving
from tiny_models import as_metadata
from tiny_vocabulary import byte_level

QUESTION: Any = [{"role": "user", "content": "Say it."}]
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")


def chunks_of(address: str, path: str, **body: Any) -> list[dict[str, Any]]:
    text = httpx.post(address + path, json={**body, "stream": True}).text
    lines = (line for line in text.splitlines() if line.startswith("data: {"))
    return [json.loads(line[6:]) for line in lines]


# Progress of a prompt.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": QUESTION}),
        ("/v1/completions", {"prompt": "The river"}),
        ("/completion", {"prompt": "The river"}),
    ],
)
def test_progress_comes_if_it_is_asked_for(path: str, body: dict[str, Any]) -> None:
    script = f"Hello.{END}"
    with serving(ScriptedSession(PLAIN, *[script] * 3)) as address:
        told = chunks_of(address, path, **body, return_progress=True)
        silent = chunks_of(address, path, **body)
        whole = httpx.post(address + path, json={**body, "return_progress": True}).json()
    said = [chunk["prompt_progress"] for chunk in told if "prompt_progress" in chunk]
    assert len(said) == 10
    done = [progress["processed"] for progress in said]
    assert done == sorted(done)
    assert done[-1] == said[-1]["total"]
    assert all(p.keys() == {"total", "cache", "processed", "time_ms"} for p in said)
    assert all(p["cache"] == 3 for p in said)
    assert not any("prompt_progress" in chunk for chunk in silent)
    assert "prompt_progress" not in whole
    at = [i for i, chunk in enumerate(told) if "prompt_progress" in chunk]
    assert at[-1] == at[0] + 9
    assert "Hello" not in json.dumps(told[: at[-1] + 1])


def test_the_engine_tells_of_each_piece() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, piece_tokens=7) as engine:
        params = SamplingParams(max_tokens=3, temperature=0, report_progress=True)
        items = list(engine.submit(list(range(1, 31)), params).items())
        silent = list(engine.submit(list(range(1, 31)), SamplingParams(max_tokens=3)).items())
    told = [item for item in items if isinstance(item, PromptProgress)]
    assert [p.processed for p in told] == [7, 14, 21, 28, 30]
    assert {(p.total, p.cached) for p in told} == {(30, 0)}
    assert [type(item) for item in items] == [PromptProgress] * 5 + [Token] * 3
    assert [type(item) for item in silent] == [Token] * 3


# Counts while it streams.


def test_native_chunks_count_tokens() -> None:
    script = f"The river was low 😸.{END}"
    session = ScriptedSession(PLAIN, script)
    with serving(session) as address:
        *parts, last = chunks_of(address, "/completion", prompt="x")
    counts = [chunk["tokens_predicted"] for chunk in parts]
    assert counts == sorted(counts)
    text = ""
    for chunk in parts:
        text += chunk["content"]
        said = session.tokenizer.decode(
            session.tokenizer.encode(script)[: chunk["tokens_predicted"]]
        )
        assert said.replace("\ufffd", "").startswith(text.strip()[:-1])
    assert last["tokens_predicted"] == session.streams[0].n_read
    assert last["timings"]["predicted_n"] == last["tokens_predicted"]


# Filling in the middle.


def fim_session(*scripts: str) -> ScriptedSession:
    session = ScriptedSession(PLAIN, *scripts)
    metadata = byte_level("qwen2")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *FIM]
    kinds = [*metadata["tokenizer.ggml.token_type"], *[3] * len(FIM)]
    metadata["tokenizer.ggml.token_type"] = kinds
    session.tokenizer = Tokenizer.from_metadata(as_metadata(metadata))
    session._chat._tokenizer = session.tokenizer
    return session


def test_the_middle_of_a_text() -> None:
    session = fim_session(*[f"low{END}"] * 4)
    with serving(session) as address:

        def post(path: str, **body: Any) -> Any:
            return httpx.post(address + path, json=body).raise_for_status().json()

        one = post("/v1/completions", prompt="The river was ", suffix=" that summer.", echo=True)
        two = post("/completion", input_prefix="a ", input_suffix=" <|fim_prefix|>")
        three = post("/infill", input_prefix="a", input_suffix="b", prompt="c")
        extra = [{"filename": "f.py", "text": "x = 1"}]
        post("/infill", input_prefix="a", input_suffix="b", input_extra=extra)
    assert one["choices"][0]["text"] == "The river was low"
    assert two["content"] == three["content"] == "low"
    prompts = [prompt for prompt, _ in session.requests]
    pre, suf, mid, sep = FIM
    assert prompts == [
        f"{pre}The river was {suf} that summer.{mid}",
        f"{pre}a {suf} <|fim_prefix|>{mid}",
        f"{pre}a{suf}b{mid}c",
        f"{sep}f.py\nx = 1\n{pre}a{suf}b{mid}",
    ]
    found = Infill.of(session.tokenizer)
    ids = found.prompt(session.tokenizer, "a", "<|fim_middle|>")
    assert ids.count(found.middle) == 1  # a text cannot say it


def test_models_that_cannot_fill_in_say_so() -> None:
    session = ScriptedSession(PLAIN)
    with pytest.raises(UnsupportedError, match="middle"):
        Infill.of(session.tokenizer)
    with serving(session) as address:
        bodies = {
            "/v1/completions": {"prompt": "a", "suffix": "b"},
            "/completion": {"input_prefix": "a"},
            "/infill": {"input_prefix": "a", "input_suffix": "b"},
        }
        for path, body in bodies.items():
            answer = httpx.post(address + path, json=body)
            assert answer.status_code == 400
            assert "middle" in answer.json()["error"]["message"]
        empty = httpx.post(f"{address}/completion", json={})
    assert (empty.status_code, "prompt" in empty.json()["error"]["message"]) == (400, True)


# Echoes with log-probabilities.


@pytest.fixture(scope="module")
def model(tiny_file: Callable[..., Path]) -> Iterator[octavo.Session]:
    with octavo.load(tiny_file("qwen3"), context=512, sequences=2) as session:
        yield session


@pytest.mark.parametrize("n", [2, 65, 130])
def test_log_probabilities_of_a_prompt(model: octavo.Session, n: int) -> None:
    """The same as from scoring, and it does not matter what was in the cache."""
    ids = [int(id) for id in np.random.default_rng(n).integers(0, 200, n)]
    rows = np.concatenate([rows.copy() for rows in model.logits(ids, 0)]).astype(np.float64)
    expected = [
        row[id] - np.logaddexp.reduce(row) for row, id in zip(rows[:-1], ids[1:], strict=True)
    ]
    params = SamplingParams(max_tokens=2, temperature=0, n_logprobs=2, prompt_logprobs=True)
    for _ in range(2):
        stream = model.engine.submit(ids, params)
        answer = stream.ids()
        tokens = stream.prompt_tokens
        assert [token.id for token in tokens] == ids[1:]
        found = [token.logprob for token in tokens]
        np.testing.assert_allclose(found, expected, atol=0.05)
        assert all(len(token.top_logprobs) == 2 for token in tokens)
    plain = SamplingParams(max_tokens=2, temperature=0)
    assert model.engine.submit(ids, plain).ids() == answer


def test_echo_has_log_probabilities_of_its_text() -> None:
    script = f" a{END}"
    session = ScriptedSession(PLAIN, *[script] * 3)
    body = {"prompt": "The river was", "echo": True, "logprobs": 1}
    with serving(session) as address:
        (whole,) = httpx.post(f"{address}/v1/completions", json=body).json()["choices"]
        parts = [c["choices"][0] for c in chunks_of(address, "/v1/completions", **body)]
        body |= {"max_tokens": 0}
        (scored,) = httpx.post(f"{address}/v1/completions", json=body).json()["choices"]
    for choice in (whole, scored):
        logprobs = choice["logprobs"]
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert logprobs["token_logprobs"][0] is None
        assert logprobs["top_logprobs"][0] is None
        assert all(value == -0.5 for value in logprobs["token_logprobs"][1:])
        texts = zip(logprobs["text_offset"], logprobs["tokens"], strict=True)
        assert all(choice["text"].startswith(text, at) for at, text in texts)
    assert (whole["text"], scored["text"]) == ("The river was a", "The river was")
    assert "".join(part["text"] for part in parts) == whole["text"]
    streamed = [part["logprobs"] for part in parts if part["logprobs"]]
    assert sum((part["tokens"] for part in streamed), []) == whole["logprobs"]["tokens"]
    assert sum((p["text_offset"] for p in streamed), []) == whole["logprobs"]["text_offset"]


# Several answers to one prompt.


def prompt_tokens(engine: Engine, ids: list[int], n: int) -> int:
    """Tokens computed for n answers to one prompt that arrive together."""
    before = engine.stats.prompt_tokens
    params = SamplingParams(max_tokens=3, temperature=0)
    streams = [engine.submit(ids, params) for _ in range(n)]
    answers = {tuple(stream.ids()) for stream in streams}
    assert len(answers) == 1
    return engine.stats.prompt_tokens - before


def test_equal_prompts_are_computed_once() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, piece_tokens=16) as engine:
        model.hold()
        params = SamplingParams(max_tokens=3, temperature=0)
        equal = [engine.submit(list(range(1, 51)), params) for _ in range(4)]
        other = engine.submit([5, 6, 7], params)
        model.free()
        answers = [stream.ids() for stream in (*equal, other)]
        assert answers == [[51, 52, 53]] * 4 + [[8, 9, 10]]
        assert engine.stats.prompt_tokens == 50 + 3 * 1 + 3
        assert [stream.usage.cached_tokens for stream in equal] == [0, 49, 49, 49]


def test_a_twin_goes_on_alone_if_the_first_is_cancelled() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, piece_tokens=16) as engine:
        model.hold()
        params = SamplingParams(max_tokens=3, temperature=0)
        first, second = (engine.submit(list(range(1, 51)), params) for _ in range(2))
        model.allow(1)
        first.cancel()
        model.free()
        assert second.ids() == [51, 52, 53]


@pytest.mark.parametrize("arch", ["qwen3", "qwen35"])
def test_n_answers_cost_one_prompt(tiny_file: Callable[..., Path], arch: str) -> None:
    ids = [int(id) for id in np.random.default_rng(3).integers(0, 200, 300)]
    with octavo.load(tiny_file(arch), context=512, sequences=4, batch=64) as session:
        params = SamplingParams(max_tokens=3, temperature=0)
        alone = session.engine.submit(ids[:-1] + [7], params).ids()
        n_computed = prompt_tokens(session.engine, ids, 4)
        assert n_computed <= 300 + 3
        assert session.engine.submit(ids[:-1] + [7], params).ids() == alone
