"""How request bodies are read, without a server: thinking, grammars, limits."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.server.wire.openai import ChatBody, CompletionBody, EmbeddingBody
from octavo.types import ChatRequest


def read(**values: Any) -> ChatRequest:
    return ChatBody(messages=[{"role": "user", "content": "q"}], **values).read()


OFF = [
    {"enable_thinking": False},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"chat_template_kwargs": {"thinking": False}},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "minimal"},
    {"reasoning": {"effort": "none"}},
    {"reasoning": {"enabled": False}},
    {"reasoning": {"max_tokens": 0}},
    {"reasoning_budget": 0},
    {"thinking_budget": 0},
    {"think": False},
    {"think": "none"},
    {"thinking": False},
    {"thinking": {"type": "disabled"}},
    {"enable_thinking": True, "reasoning_effort": "none"},
]
ON = [
    {"enable_thinking": True},
    {"chat_template_kwargs": {"enable_thinking": True}},
    {"reasoning_effort": "low"},
    {"reasoning": {"effort": "high"}},
    {"think": True},
    {"think": "high"},
    {"thinking": {"type": "enabled"}},
    {"thinking": "enabled"},
]
OPEN = [
    {},
    {"thinking": {"type": "adaptive"}},
    {"thinking": None},
    {"reasoning": {}},
    {"reasoning_budget": -1},
    {"chat_template_kwargs": {"other": 1}},
]


@pytest.mark.parametrize(
    ("values", "on"), [(v, on) for vs, on in ((OFF, False), (ON, True), (OPEN, None)) for v in vs]
)
def test_every_spelling_of_thinking(values: dict[str, Any], on: bool | None) -> None:
    assert read(**values).thinking is on


@pytest.mark.parametrize(
    ("values", "budget"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, 9),
        ({"reasoning": {"max_tokens": 9}}, 9),
        ({"reasoning_budget": 9, "thinking_budget": 5}, 5),
        ({"thinking_budget_tokens": 9, "reasoning_budget": -1}, 9),
        ({"reasoning_budget": -1}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, None),
    ],
)
def test_every_spelling_of_a_budget(values: dict[str, Any], budget: int | None) -> None:
    assert read(**values).thinking_budget == budget


def test_templates_get_what_they_may_know() -> None:
    args = read(
        chat_template_kwargs={"preserve_thinking": True, "enable_thinking": True},
        reasoning_effort="high",
    ).template_args
    assert args == {"preserve_thinking": True, "reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x", ["x"]),
        (["x", "y"], ["x", "y"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts_in_four_forms(given: Any, expected: Any) -> None:
    assert CompletionBody(prompt=given).prompts == expected
    assert EmbeddingBody(input=given).texts == expected
