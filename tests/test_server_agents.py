"""Whole loops of coding agents: question, call, result, answer, with what they really send.

The requests have the fields and the order of those that Claude Code and Codex send; the words are
made up. What counts is that the second prompt goes on from the first, so that it is not computed
again.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from serving import END, ScriptedSession, serving
from test_server_anthropic import raw_events

# As the families whose templates show thinking and calls, with the model's spelling of both.
AGENT = """\
{%- if tools %}<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == "assistant" %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
{{ "<think>\n" }}"""
CALL = '<tool_call>\n{"name": "%s", "arguments": {"path": "a.txt", "new": "x"}}\n</tool_call>'
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "new": {"type": "string"},
        "all": {"type": "boolean", "default": False},
    },
    "required": ["path", "new"],
    "additionalProperties": False,
}
MARK = {"cache_control": {"type": "ephemeral"}}


def script(name: str) -> tuple[str, str]:
    """What the model writes: thinking and a call, then thinking and an answer."""
    called = f"I think.\n</think>\n\nI change it.\n{CALL % name}{END}"
    return called, f"It is.\n</think>\n\nDone.{END}"


def posted(address: str, path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    headers = {"anthropic-beta": "some-new-thing-2026-11-01", "authorization": "Bearer octavo"}
    answer = httpx.post(address + path, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return raw_events(answer.text)


def goes_on(session: ScriptedSession) -> str:
    """The second prompt, which begins with the first and what was answered to it."""
    first, second = (prompt for prompt, _ in session.requests)
    assert second.startswith(first + "I think.\n</think>\n\nI change it.")
    return second


def test_the_loop_of_claude_code() -> None:
    """A reminder as a system message behind the question, thinking sent back with its signature,
    and a default that the client writes into the call before it sends that back."""
    session = ScriptedSession(AGENT, *script("Edit"), context=8192)
    text = [
        {"type": "text", "text": "<note>Today.</note>"},
        {"type": "text", "text": "Do.", **MARK},
    ]
    messages: list[Any] = [
        {"role": "user", "content": text},
        {"role": "system", "content": "There are helpers of these kinds."},
    ]
    body = {
        "model": "any",
        "messages": messages,
        "system": [{"type": "text", "text": t, **MARK} for t in ("You are an agent.", "Rules.")],
        "tools": [{"name": "Edit", "description": "Change a file.", "input_schema": SCHEMA}],
        "metadata": {"user_id": '{"session_id": "1"}'},
        "max_tokens": 2000,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "stream": True,
    }
    with serving(session) as address:
        events = posted(address, "/v1/messages?beta=true", body)
        blocks = [d["content_block"] for n, d in events if n == "content_block_start"]
        thinking, said, call = blocks
        deltas = [(d["index"], d["delta"]) for n, d in events if n == "content_block_delta"]
        for index, field in ((0, "thinking"), (1, "text")):
            blocks[index][field] = "".join(d.get(field, "") for i, d in deltas if i == index)
        signed = [d["signature"] for _, d in deltas if d["type"] == "signature_delta"]
        thinking["signature"] = signed[0]
        written = json.loads("".join(d["partial_json"] for i, d in deltas if i == 2))
        call["input"] = {"all": False, **written}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Changed.", **MARK}
        messages += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result]},
        ]
        count = {k: body[k] for k in ("model", "messages", "system", "tools")}
        counted = httpx.post(f"{address}/v1/messages/count_tokens?beta=true", json=count)
        last = posted(address, "/v1/messages?beta=true", body)
    assert (thinking["thinking"], said["text"].strip()) == ("I think.", "I change it.")
    assert written == {"path": "a.txt", "new": "x"}
    assert [d["delta"]["stop_reason"] for n, d in events if n == "message_delta"] == ["tool_use"]
    assert [d["delta"]["stop_reason"] for n, d in last if n == "message_delta"] == ["end_turn"]
    second = goes_on(session)
    assert '"all"' not in second.partition("<|im_start|>assistant")[2]  # only in the declaration
    assert "Changed." in second
    assert counted.json()["input_tokens"] == session.streams[1].usage.prompt_tokens


def test_the_loop_of_codex() -> None:
    """Instructions in developer messages, items with ids, hidden thinking sent back as it came."""
    session = ScriptedSession(AGENT, *script("edit"), context=8192)

    def said(role: str, *texts: str) -> dict[str, Any]:
        parts = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "id": f"msg_{role}", "role": role, "content": parts}

    given: list[Any] = [
        said("developer", "You are an agent."),
        said("developer", "Skills.", "Permissions."),
        said("user", "Where we are."),
        said("user", "Do."),
    ]
    body = {
        "model": "any",
        "stream": True,
        "input": given,
        "tools": [
            {"type": "function", "name": "edit", "strict": False, "parameters": SCHEMA},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "1",
        "client_metadata": {"turn_id": "1"},
    }
    with serving(session) as address:
        events = posted(address, "/v1/responses", body)
        items = [d["item"] for n, d in events if n == "response.output_item.done"]
        assert [i["type"] for i in items] == ["reasoning", "message", "function_call"]
        assert json.loads(items[2]["arguments"]) == {"path": "a.txt", "new": "x"}
        items[0] |= {"summary": [], "content": None}  # only what is hidden comes back
        call_id = items[2]["call_id"]
        result = {"type": "function_call_output", "call_id": call_id, "output": "Changed."}
        given += [*items, result]
        last = posted(address, "/v1/responses", body)
    name, data = last[-1]
    assert (name, data["response"]["status"]) == ("response.completed", "completed")
    second = goes_on(session)
    assert second.index("Skills.") < second.index("Where we are.") < second.index("Changed.")
