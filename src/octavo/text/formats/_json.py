"""JSON objects inside of other text: where one ends, and what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from octavo.text.formats._declared import Tools
from octavo.text.formats._values import from_text, read_json
from octavo.types import ToolCall

_SIGNS = re.compile(r'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
ARGUMENT_KEYS = ("arguments", "parameters", "args")


def value_end(text: str, at: int) -> int | None:
    """Where the object or list that begins at `at` ends; None: not in this text."""
    depth = 0
    for sign in _SIGNS.finditer(text, at):
        found = sign.group()
        if found in ("{", "["):
            depth += 1
        elif found in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return sign.end()
        elif found == '"':  # a string that has no end yet
            return None
    return None


def parse(text: str) -> Any:
    """The value of an object or list, also one that breaks small rules; else None."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        value = from_text(text, ["object", "array"])
        return None if isinstance(value, str) else value


def as_call(tools: Tools, value: Any) -> ToolCall | None:
    """`{"name": ..., "arguments": {...}}` in its usual spellings; None if it is no call."""
    if not isinstance(value, Mapping):
        return None
    function = value.get("function")
    if isinstance(function, Mapping):
        value = function
    name = value.get("name", function if isinstance(function, str) else None)
    if not isinstance(name, str) or not name:
        return None
    given: Any = next((value[key] for key in ARGUMENT_KEYS if key in value), {})
    if isinstance(given, str):
        given = parse(given) if given.strip() else {}
    return tools.call(name, given) if isinstance(given, Mapping) else None
