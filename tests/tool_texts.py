"""Calls as each dialect writes them: what a model that makes no mistakes would say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Arguments = Mapping[str, Any]
Calls = Iterable[tuple[str, Arguments]]

# A text of a template that selects the dialect (and its spelling).
TEMPLATES = {
    "qwen3_xml": "<tool_call>\n<function=example>",
    "hermes": "<tool_call>\n{}\n</tool_call>",
    "llama_json": "<|python_tag|>",
    "mistral": "[TOOL_CALLS]",
    "mistral_new": "[TOOL_CALLS]f[ARGS]",
    "harmony": "<|channel|>x<|message|>",
    "gemma": "<|tool_call>",
    "gemma_old": "<start_function_call>",
}


def written(dialect: str, calls: Calls) -> str:
    """The calls, one after another."""
    return _SEPARATORS.get(dialect, "").join(_WRITERS[dialect](name, a) for name, a in calls)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _xml(name: str, arguments: Arguments) -> str:
    lines = [
        f"<parameter={key}>\n{value if isinstance(value, str) else _json(value)}\n</parameter>\n"
        for key, value in arguments.items()
    ]
    return f"<tool_call>\n<function={name}>\n{''.join(lines)}</function>\n</tool_call>"


def _hermes(name: str, arguments: Arguments) -> str:
    return f"<tool_call>\n{_json({'name': name, 'arguments': arguments})}\n</tool_call>"


def _llama(name: str, arguments: Arguments) -> str:
    return _json({"name": name, "parameters": arguments})


def _mistral(name: str, arguments: Arguments) -> str:
    return f"[TOOL_CALLS][{_json({'name': name, 'arguments': arguments})}]"


def _mistral_new(name: str, arguments: Arguments) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}"


def _harmony(name: str, arguments: Arguments) -> str:
    head = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{head}{_json(arguments)}<|call|>"


def _gemma(name: str, arguments: Arguments) -> str:
    value = gemma_value(arguments, '<|"|>')
    return f"<|tool_call>call:{name}{value}<tool_call|>"


def _gemma_old(name: str, arguments: Arguments) -> str:
    value = gemma_value(arguments, "<escape>")
    return f"<start_function_call>call:{name}{value}<end_function_call>"


def gemma_value(value: Any, quote: str) -> str:
    """A value in Gemma's notation."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{gemma_value(v, quote)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(gemma_value(item, quote) for item in value) + "]"
    return json.dumps(value)


_SEPARATORS = {"qwen3_xml": "\n", "hermes": "\n", "llama_json": "; "}
_WRITERS = {
    "qwen3_xml": _xml,
    "hermes": _hermes,
    "llama_json": _llama,
    "mistral": _mistral,
    "mistral_new": _mistral_new,
    "harmony": _harmony,
    "gemma": _gemma,
    "gemma_old": _gemma_old,
}
