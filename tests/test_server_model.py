"""The server on a tiny model with random weights: the same answers as from Python."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import octavo
from serving import serving

QUESTION: Any = [{"role": "user", "content": "Say it."}]


@pytest.fixture(scope="module")
def model(tiny_file: Callable[..., Path]) -> Iterator[octavo.Session]:
    with octavo.load(tiny_file("llama"), context=256, sequences=2) as session:
        yield session


@pytest.fixture(scope="module")
def address(tiny_file: Callable[..., Path]) -> Iterator[str]:
    with serving(octavo.load(tiny_file("llama"), context=256, sequences=2)) as address:
        yield address


def ask(address: str, **options: Any) -> Any:
    body = {"messages": QUESTION, "max_tokens": 8, "temperature": 0, **options}
    return httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)


def test_same_answer_as_from_python(address: str, model: octavo.Session) -> None:
    expected = model.chat("Say it.", max_tokens=8, temperature=0)
    choice = ask(address).json()["choices"][0]
    assert choice["message"]["content"] == expected.content
    assert choice["message"].get("reasoning_content", "") == expected.reasoning
    text = httpx.post(
        f"{address}/completion", json={"prompt": "The river", "n_predict": 8, "temperature": 0}
    ).json()["content"]
    assert text == model.generate("The river", max_tokens=8, temperature=0).content


def test_many_at_once_are_one_answer(address: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(address).json(), range(16)))
    assert len({json.dumps(answer["choices"]) for answer in answers}) == 1


def test_seed_repeats(address: str) -> None:
    one, two, other = (
        ask(address, seed=seed, temperature=1.5).json()["choices"] for seed in (5, 5, 6)
    )
    assert one == two != other


def test_json_schema_holds(address: str) -> None:
    schema = {"enum": ["yes"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="m",
            messages=QUESTION,
            response_format=form,
            max_tokens=64,  # type: ignore[call-overload]
        )
        wrong = {"type": "json_schema", "json_schema": {"schema": {"type": "odd"}}}
        with pytest.raises(openai.BadRequestError, match="odd"):
            client.chat.completions.create(model="m", messages=QUESTION, response_format=wrong)  # type: ignore[call-overload]
    assert json.loads(answer.choices[0].message.content) == "yes"


def test_second_request_finds_the_prompt_in_the_cache(address: str) -> None:
    long = [{"role": "user", "content": "The river was low that summer. " * 8}]
    for _ in range(2):
        usage = ask(address, messages=long).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0


def test_too_long_for_the_context(address: str) -> None:
    answer = ask(address, messages=[{"role": "user", "content": "river " * 400}])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["n_prompt_tokens"] > error["n_ctx"] == 256


def test_embeddings_need_an_embedding_model(address: str) -> None:
    answer = httpx.post(f"{address}/v1/embeddings", json={"input": "x"})
    assert answer.status_code == 400


def test_engine_is_idle_when_the_client_has_left(address: str) -> None:
    body = {"messages": QUESTION, "max_tokens": 200, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{address}/v1/chat/completions", json=body) as answer:
        next(answer.iter_raw())
    end = time.monotonic() + 20
    idle = 'octavo_requests_running{model="scripted"} 0'
    while idle not in httpx.get(f"{address}/metrics").text:
        assert time.monotonic() < end
        time.sleep(0.01)
