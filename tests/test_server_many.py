"""Many clients at once get what each would get alone, whoever else is computing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import octavo
from serving import serving

N = 16
QUESTION = "Why is the sky blue?"
SECRETS = [f"The secret word is {word}. " * 3 for word in ("fox", "ferry", "sun", "tea", "ox")]
# Prompts of other lengths, which begin in the same way or in another.
NEIGHBOURS = ("Why is the sky", "River. " * 5, "Why is the sky blue? " * 12, "One two three. " * 40)


def ask(address: str, n_tokens: int, text: str = QUESTION) -> str:
    messages = [{"role": "user", "content": text}]
    body = {"messages": messages, "max_tokens": n_tokens, "temperature": 0}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=600)
    return str(answer.raise_for_status().json()["choices"][0]["message"])


@contextlib.contextmanager
def neighbours(address: str) -> Iterator[None]:
    """Others that are answered while the block runs; each has its first token before it begins."""
    with contextlib.ExitStack() as stack:
        for text in NEIGHBOURS:
            body = {"prompt": text, "max_tokens": -1, "ignore_eos": True, "stream": True}
            answer = stack.enter_context(
                httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=600)
            )
            lines = (line for line in answer.iter_lines() if line.startswith("data: {"))
            assert answer.status_code == 200
            next(lines)  # says that it begins
            next(lines)
        yield


def check_answers(path: Path, n_tokens: int) -> None:
    with (
        octavo.load(path, context=512, sequences=8) as session,
        serving(session) as address,
        ThreadPoolExecutor(N) as pool,
    ):
        alone = ask(address, n_tokens)
        assert {*pool.map(lambda _: ask(address, n_tokens), range(N))} == {alone}
        each = [ask(address, n_tokens, text) for text in SECRETS]
        assert list(pool.map(lambda text: ask(address, n_tokens, text), SECRETS)) == each
        with neighbours(address):
            assert {*pool.map(lambda _: ask(address, n_tokens), range(N))} == {alone}


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_as_if_alone_on_tiny_models(arch: str, tiny_file: Callable[..., Path]) -> None:
    """G1: also where sequences have recurrent states."""
    check_answers(tiny_file(arch), 12)


@pytest.mark.weights
def test_as_if_alone_on_a_real_model(real_file: Callable[[str], Path]) -> None:
    check_answers(real_file("smollm2-135m-instruct-q4_1.gguf"), 48)
