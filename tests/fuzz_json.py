"""JSON that is nearly right: sound bodies, and one to three changes in each."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "write",
        "description": "Write a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "mode": {"type": "integer"}},
            "required": ["path"],
        },
    },
}
_CALL = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"path": 1}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Write it."}, "And more."]},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "user", "content": "Thanks."},
]
_THINKING = {
    "enable_thinking": True,
    "chat_template_kwargs": {"enable_thinking": False, "x": [1]},
    "reasoning": {"effort": "high", "max_tokens": 9},
    "thinking": {"type": "enabled", "budget_tokens": 9},
    "reasoning_budget": -1,
    "think": "high",
}
_SAMPLING = {
    "max_tokens": 8,
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.1,
    "repeat_penalty": 1.1,
    "dry_multiplier": 0.5,
    "seed": 7,
    "logit_bias": {"5": -1.5},
    "stop": ["END", "\n\n"],
}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
_FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA, "strict": True}}
_CHAT = {
    "model": "m",
    "messages": MESSAGES,
    "tools": [TOOL],
    "tool_choice": "auto",
    "stream": False,
    "stream_options": {"include_usage": True},
    "n": 1,
    "logprobs": True,
    "top_logprobs": 2,
    **_THINKING,
    **_SAMPLING,
}
_RESPONSES = {
    "model": "m",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Write it."}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]},
        {"type": "function_call", "call_id": "c1", "name": "write", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "sh", "input": "ls"},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]},
    ],
    "instructions": "Be brief.",
    "previous_response_id": None,
    "metadata": {"k": "v"},
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "text": {"format": {"type": "text"}},
    "tools": [
        {"type": "function", "name": "write", "parameters": _SCHEMA},
        {"type": "custom", "name": "sh", "format": {"syntax": "lark", "definition": "x"}},
        {"type": "web_search"},
        {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "f"}]},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "write"}]},
    "stream": False,
    **_THINKING,
    **_SAMPLING,
}
_CLAUDE = {
    "model": "m",
    "max_tokens": 8,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Write it."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "write", "input": {"path": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "done"}],
                    "is_error": False,
                },
                {"type": "document", "source": {"type": "text", "data": "page"}},
            ],
        },
    ],
    "tools": [{"name": "write", "description": "d", "input_schema": _SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "high", "format": None},
    "stop_sequences": ["END"],
    "temperature": 1.0,
    "stream": False,
}
_COMPLETION = {"prompt": "The river", "n": 1, "echo": True, "logprobs": 1, **_SAMPLING}
_NATIVE = {
    "prompt": ["The ", 5, 7],
    "n_predict": 8,
    "n_probs": 2,
    "input_prefix": None,
    "input_suffix": None,
    "stream": False,
    **_SAMPLING,
}
_INFILL = {
    "input_prefix": "def f(",
    "input_suffix": "x",
    "input_extra": [{"filename": "a.py", "text": "x = 1"}],
    "prompt": "y",
}

# Sound bodies of every route that takes one.
SEEDS: dict[str, list[Any]] = {
    "/v1/chat/completions": [
        _CHAT,
        {"messages": MESSAGES, "response_format": _FORM, "max_tokens": 4},
        {"input": _RESPONSES["input"], "tools": _RESPONSES["tools"], "stream": True},
    ],
    "/v1/completions": [_COMPLETION, {"prompt": [[1, 2], [3]], "stream": True}],
    "/v1/embeddings": [{"input": ["a", "b"], "dimensions": 2, "encoding_format": "base64"}],
    "/v1/responses": [_RESPONSES, {"input": "q", "stream": True}],
    "/v1/responses/input_tokens": [_RESPONSES],
    "/v1/messages": [_CLAUDE, {**_CLAUDE, "stream": True}],
    "/v1/messages/count_tokens": [_CLAUDE],
    "/completion": [_NATIVE],
    "/infill": [_INFILL],
    "/tokenize": [{"content": "The river", "add_special": True, "with_pieces": True}],
    "/detokenize": [{"tokens": [1, 2, 3]}],
    "/apply-template": [_CHAT],
    "/v1/models/load": [{"model": "m", "wait": False, "force": False}],
    "/v1/models/unload": [{"model": "m", "force": False}],
    "/slots/0?action=save": [{"filename": "a.bin"}],
    "/v1/requests/req_1/answer-now": [{}],
}

_DEEP: Any = [[[[[[[[[[[[{"a": [{}]}]]]]]]]]]]]]
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 5, 31, 33, 256, 2**31, 2**53, 2**64, -(2**63), 10**30),
    *(0.0, -0.5, 1.5, 1e308, -1e308, 1e-320, float("inf"), float("-inf"), float("nan")),
    *("", " ", "a", "auto", "none", "required", "function", "custom", "text", "user", "system"),
    *("assistant", "tool", "json_schema", "json_object", "message", "item_reference", "base64"),
    *("\x00", "\ud800", "\udfff\ud800", "\u2028", "\ufdd0", "é́", "😀", "<|im_start|>", "<think>"),
    *("</think>", "<tool_call>", "{{ 1/0 }}", "{% for %}", "../../etc", "a" * 300, "１２"),
    *([], {}, [None], [[]], [{}], {"": None}, {"type": []}, {"type": {}}, {"a": {"$ref": "#"}}),
    *({"$ref": "#/x"}, {"type": "array"}, {"enum": []}, {"pattern": "("}, {"anyOf": [False]}),
    _DEEP,
)
_KEYS = sorted(
    {key for bodies in SEEDS.values() for body in bodies for key in body}
    | {"role", "content", "type", "name", "id", "function", "arguments", "text", "schema", "$ref"}
)
_TOKENS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\u", b"null", b"1e999", b"\xff", b"\x00")


def near(rng: random.Random, seed: Any) -> Any:
    """A copy with a few changes."""
    body = [copy.deepcopy(seed)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(rng, body)
    return body[0]


def near_bytes(rng: random.Random, seed: Any) -> bytes:
    """The same as JSON; one in ten is hurt as bytes too."""
    data = json.dumps(near(rng, seed)).encode()
    if rng.random() < 0.1:
        at, n = rng.randrange(len(data) + 1), rng.choice((0, 1, 1, 3, 20))
        data = data[:at] + rng.choice(_TOKENS) * rng.choice((0, 1, 1, 2, 3000)) + data[at + n :]
    return data


def _change(rng: random.Random, root: list[Any]) -> None:
    holder, key = _place(rng, root)
    kind = rng.random()
    if kind < 0.55:
        holder[key] = copy.deepcopy(rng.choice(_ODD))
    elif kind < 0.7:
        del holder[key]
        if holder is root:
            root.append({})
    elif kind < 0.85:
        other, place = _place(rng, root)
        holder[key] = copy.deepcopy(other[place])
    elif isinstance(holder[key], dict):
        holder[key][rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_ODD))
    elif isinstance(holder[key], list):
        holder[key].append(copy.deepcopy(rng.choice(_ODD)))
    else:
        holder[key] = [holder[key]] * rng.choice((1, 2, 40))


def _place(rng: random.Random, root: list[Any]) -> tuple[Any, Any]:
    """A container and a key of it, near the top more often than deep inside."""
    holder: Any = root
    key: Any = 0
    while rng.random() < 0.9:
        inner = holder[key]
        if isinstance(inner, dict) and inner:
            holder, key = inner, rng.choice(list(inner))
        elif isinstance(inner, list) and inner:
            holder, key = inner, rng.randrange(len(inner))
        else:
            break
    return holder, key
