"""Prompts that keep their beginning, and what is said when one does not."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import octavo
from octavo.chat import Answer
from octavo.server.conversations import CAUSES, Conversations
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, Message, ToolCall, Usage
from serving import END, PLAIN, THINKER, ScriptedSession, serving
from tiny_models import as_metadata
from tiny_vocabulary import byte_level

HEADER = "x-anthropic-billing-header: cc_version=2.1.237; cc_entrypoint=cli; cch={};"
# Keeps the thinking of earlier turns if it is asked to, as the templates of Qwen3.6 do.
KEEPER = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == "assistant" and preserve_thinking %}<think>{{ m.reasoning_content }}</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>
"""


def template(source: str) -> Template:
    return Template(source, Tokenizer.from_metadata(as_metadata(byte_level("qwen2"))))


def chat(*texts: str, system: str = "Be brief.", **more: Any) -> ChatRequest:
    roles = ("user", "assistant")
    turns = [Message(roles[i % 2], text) for i, text in enumerate(texts)]
    return ChatRequest((Message("system", system), *turns), **more)


def answered(content: str, reasoning: str, n_prompt: int = 1000, **more: Any) -> Answer:
    return Answer(content, reasoning, usage=Usage(prompt_tokens=n_prompt), **more)


@pytest.mark.parametrize(
    "system",
    [
        HEADER + "\n\nBe brief.",
        HEADER + "Be brief.",
        HEADER.removesuffix(";") + "\nBe brief.",
        "\n" + HEADER + "\nBe brief.",
    ],
)
def test_the_attribution_header_is_dropped(system: str) -> None:
    kept = Conversations()
    shown = [
        kept.steady(chat("Hi", system=system.format(tag)), template(PLAIN)).messages
        for tag in ("a1b2c", "0ffee")
    ]
    assert shown[0] == shown[1] == chat("Hi").messages


def test_what_only_looks_like_it_stays() -> None:
    for system in ("Explain x-anthropic-billing-header: a=b;", "x-anthropic: a=b; text"):
        request = chat("Hi", system=system)
        assert Conversations().steady(request, template(PLAIN)).messages == request.messages
    alone = chat("Hi", system=HEADER.format("a1b2c"))
    assert [m.role for m in Conversations().steady(alone, template(PLAIN)).messages] == ["user"]


def test_thinking_that_the_client_left_out_comes_back() -> None:
    kept, shape = Conversations(), template(KEEPER)
    calls = (ToolCall("look", '{"at": 1, "b": 2}', "call_1"),)
    turn = kept.begin(kept.steady(chat("Why?"), shape))
    turn.end(answered("So.", "I think", tool_calls=list(calls)))
    same = (ToolCall("look", '{"b":2,"at":1}', "other_id"),)
    for content in ("So.", "So.\n"):
        later = chat("Why?", content, "And?")
        said = replace(later.messages[2], tool_calls=same)
        later = replace(later, messages=(*later.messages[:2], said, later.messages[3]))
        assert kept.steady(later, shape).messages[2].reasoning == "I think"
        assert kept.steady(later, template(PLAIN)).messages[2].reasoning == ""
    for texts in (("Why not?", "So.", "And?"), ("Why?", "Other.", "And?")):
        assert kept.steady(chat(*texts), shape).messages[2].reasoning == ""
    own = chat("Why?", "So.", "And?")
    own = replace(
        own,
        messages=(
            *own.messages[:2],
            Message("assistant", "So.", "Mine"),
        ),
    )
    assert kept.steady(own, shape).messages[2].reasoning == "Mine"


def test_templates_that_can_keep_thinking_do() -> None:
    kept = Conversations()
    assert kept.steady(chat("Hi"), template(KEEPER)).template_args == {"preserve_thinking": True}
    assert kept.steady(chat("Hi"), template(THINKER)).template_args == {}
    asked = chat("Hi", template_args={"preserve_thinking": False})
    assert kept.steady(asked, template(KEEPER)).template_args == {"preserve_thinking": False}


def test_prompts_are_left_as_they_come_where_that_is_wanted() -> None:
    kept, shape = Conversations(mends=False), template(KEEPER)
    kept.begin(chat("Why?")).end(answered("So.", "I think"))
    request = chat("Why?", "So.", "And?", system=HEADER.format("a1b2c") + "\nBe brief.")
    assert kept.steady(request, shape) == request


def test_thinking_is_bounded_and_the_oldest_goes() -> None:
    kept, shape = Conversations(max_thinking_bytes=1000), template(KEEPER)
    for number in range(20):
        kept.begin(chat(f"q{number}")).end(answered(f"a{number}", "é" * 50))
    known = [
        bool(kept.steady(chat(f"q{n}", f"a{n}", "x"), shape).messages[2].reasoning)
        for n in range(20)
    ]
    assert known == [False] * 10 + [True] * 10


WRITTEN = '{"path": "a.txt", "new": "x"}'


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ('{"all": false, "path": "a.txt", "new": "x"}', WRITTEN),  # a default, at the front
        ('{"new":"x","path":"a.txt"}', WRITTEN),
        ('{"path": "a.txt", "new": "y"}', '{"path": "a.txt", "new": "y"}'),  # a person changed it
        ('{"path": "a.txt"}', '{"path": "a.txt"}'),
        ("[]", "[]"),
    ],
)
def test_calls_come_back_as_the_model_wrote_them(returned: str, expected: str) -> None:
    kept, shape = Conversations(), template(PLAIN)
    call = ToolCall("edit", WRITTEN, "call_1")
    odd = ToolCall("edit", '{"path": "\ud83d"}', "call_3")  # as a model may write it
    kept.begin(chat("Do it.")).end(answered("", "", tool_calls=[call, odd]))
    for id, arguments in (("call_1", expected), ("call_2", returned)):
        said = Message("assistant", tool_calls=(ToolCall("edit", returned, id),))
        request = ChatRequest((Message("user", "Do it."), said, Message("tool", "done")))
        steady = kept.steady(request, shape)
        assert steady.messages[1].tool_calls[0].arguments == arguments


USAGE = Usage(prompt_tokens=1500, cached_tokens=123, reuse_cause="diverged", reuse_reason="why")


@pytest.mark.parametrize(
    ("second", "usage", "expected"),
    [
        (chat("a", "b", "c", system="Be long."), USAGE, ("system", "system message changed")),
        (chat("a", "b", "c", tools=({"name": "f"},)), USAGE, ("tools", "the tools changed")),
        (chat("a", "B", "c"), USAGE, ("message", "message 2 (assistant) changed")),
        (chat("a", "b", "c"), USAGE, ("template", "the template renders")),
        (chat("a", "b", "c"), replace(USAGE, reuse_cause="snapshot"), ("snapshot", "why")),
        (chat("a", "b", "c"), replace(USAGE, reuse_cause="evicted"), ("evicted", "why")),
        (chat("a", "b", "c"), replace(USAGE, cached_tokens=1000), None),
        (chat("a", "b", "c", system="Be long."), replace(USAGE, cached_tokens=900), None),
        (chat("another"), USAGE, None),
        (chat("a"), replace(USAGE, prompt_tokens=200, cached_tokens=0), None),
    ],
)
def test_the_cause_of_a_break_is_named(
    second: ChatRequest, usage: Usage, expected: tuple[str, str] | None
) -> None:
    kept = Conversations()
    kept.begin(chat("unrelated"))
    first = kept.begin(chat("a", "b"))
    first.end(answered("x", "", 1000))
    change = kept.begin(second).broke(usage)
    if expected is None:
        assert change is None
    else:
        assert change is not None
        assert change.cause == expected[0]
        assert change.cause in CAUSES
        assert change.text.startswith(f"reuse broke at token 123: {expected[1]}")


def test_the_conversation_that_has_most_in_common_is_compared() -> None:
    kept = Conversations()
    for texts in (("a", "b", "c"), ("a", "x"), ("z",)):
        kept.begin(chat(*texts)).end(answered("", "", 1000))
    change = kept.begin(chat("a", "b", "d")).broke(USAGE)
    assert change is not None
    assert "message 3 (user) changed" in change.text


def test_hostile_json_is_digested() -> None:
    calls = (ToolCall("f", "[" * 10**5), ToolCall("g", "not JSON"), ToolCall("h", "1e999"))
    said = Message("assistant", "\ud800", tool_calls=calls)
    kept = Conversations()
    request = ChatRequest((Message("user", "a"), said, Message("user", "b")))
    assert kept.begin(kept.steady(request, template(KEEPER))).broke(Usage()) is None


def test_over_http_the_prompt_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """A client that drops thinking, on both APIs; what is sent to the model is compared."""
    script = f"pondering</think>\n\nHello.{END}"
    session = ScriptedSession(KEEPER, *[script] * 4)
    with serving(session) as address:
        for path, extra in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 50})):
            messages = [{"role": "user", "content": f"Hi {path}"}]
            body: dict[str, Any] = {"messages": messages, **extra}
            httpx.post(address + path, json=body)
            messages += [
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "More."},
            ]
            httpx.post(address + path, json=body)
            first, second = (prompt for prompt, _ in session.requests[-2:])
            assert second.startswith(f"{first}pondering</think>\n\nHello.<|im_end|>")


def test_the_log_and_the_metrics_say_what_broke(
    tiny_file: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "octavo.server")
    long = "The river was low that summer, and the ferryman waited. " * 14
    session = octavo.load(tiny_file("llama"), sequences=1)
    with serving(session) as address:
        for number, system in enumerate((f"one {long}", f"two {long}", f"two {long}")):
            messages = [
                {"role": "system", "content": system},
                {"role": "user", "content": "Say it." + " Again." * number},
            ]
            body = {"messages": messages[:1] + [{"role": "user", "content": "Say it."}]}
            body |= {"max_tokens": 2, "temperature": 0}
            httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)
        metrics = httpx.get(f"{address}/metrics").text
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "octavo.server"]
    reuse = [line.get("reuse") for line in lines if line["method"] == "POST"]
    assert reuse[0] is None
    assert reuse[1].startswith("reuse broke at token ")
    assert reuse[1].endswith(": system message changed")
    assert reuse[2] is None
    assert 'octavo_reuse_broken_total{cause="system"} 1' in metrics
    assert 'octavo_reuse_broken_total{cause="evicted"} 0' in metrics
    assert 'octavo_cache_hits_total{model="scripted"} 2' in metrics
    kept = next(
        line for line in metrics.splitlines() if line.startswith("octavo_cache_kept_bytes{")
    )
    assert int(kept.split()[-1]) > 0
