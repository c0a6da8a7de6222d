"""Random JSON schemas of arguments, and a plain check of values against them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

PATTERNS = ("^[a-z]{2,4}$", "^(yes|no)", "[0-9]", "^a/b")


def random_tools(seed: int, *, short: bool) -> list[dict[str, Any]]:
    """One to three declarations. `short`: every text and list has a limit."""
    rng = random.Random(seed)
    return [
        {
            "type": "function",
            "function": {
                "name": rng.choice(["f", "get_it", "mcp__srv__search-by-title", "a.b"]) + str(i),
                "parameters": _object(rng, 0, short),
            },
        }
        for i in range(rng.randint(1, 3))
    ]


def is_valid(value: Any, schema: Any, root: Any = None) -> bool:
    """Whether a value matches a schema of the kinds made here."""
    root = schema if root is None else root
    if "$ref" in schema:
        return is_valid(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return any(is_valid(value, part, root) for part in schema["anyOf"])
    if "enum" in schema:
        return any(value == item and type(value) is type(item) for item in schema["enum"])
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return any(_is(value, name, schema, root) for name in names)


def _is(value: Any, name: str, schema: Mapping[str, Any], root: Any) -> bool:
    if name == "null":
        return value is None
    if name == "boolean":
        return isinstance(value, bool)
    if name in ("integer", "number"):
        right = isinstance(value, int if name == "integer" else (int, float))
        low, high = schema.get("minimum", -1e99), schema.get("maximum", 1e99)
        return right and not isinstance(value, bool) and low <= value <= high
    if name == "string":
        long_enough = isinstance(value, str) and len(value) >= schema.get("minLength", 0)
        short_enough = long_enough and len(value) <= schema.get("maxLength", 1e9)
        return short_enough and bool(re.search(schema.get("pattern", ""), value))
    if name == "array":
        right = isinstance(value, list) and len(value) >= schema.get("minItems", 0)
        right = right and len(value) <= schema.get("maxItems", 1e9)
        return right and all(is_valid(item, schema["items"], root) for item in value)
    known = schema["properties"]
    right = isinstance(value, dict) and set(schema.get("required", ())) <= value.keys()
    return right and all(k in known and is_valid(v, known[k], root) for k, v in value.items())


def _object(rng: random.Random, depth: int, short: bool) -> dict[str, Any]:
    names = rng.sample(["path", "n", "q", "options", "is_new", "x-y", "date"], rng.randint(0, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _schema(rng, depth + 1, short) for name in names},
        "required": [name for name in names if rng.random() < 0.5],
        "additionalProperties": False,
    }
    if depth == 0 and names and rng.random() < 0.3:
        schema["$defs"] = {"unit": {"enum": ["c", "f"]}}
        schema["properties"][names[0]] = {"$ref": "#/$defs/unit"}
    return schema


def _schema(rng: random.Random, depth: int, short: bool) -> dict[str, Any]:
    kind = rng.choice(["string", "string", "integer", "number", "boolean", "enum", "any", "null"])
    if depth < 3 and rng.random() < 0.3:
        kind = rng.choice(["array", "object"])
    if kind == "object":
        return _object(rng, depth, short)
    if kind == "array":
        return {
            "type": "array",
            "items": _schema(rng, depth + 1, short),
            "minItems": rng.randint(0, 1),
            "maxItems": rng.randint(1, 3),
        }
    if kind == "string":
        return _string(rng, short)
    if kind == "enum":
        return {"enum": rng.sample(["a", "bc", 'd"e', "f/g", 1, 2.5, None, True], 3)}
    if kind == "any":
        return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "boolean"}]}
    if kind == "null":
        return {"type": ["integer", "null"], "minimum": 0, "maximum": 99}
    if short and kind == "number":  # its decimals have no end
        kind = "integer"
    limits = {"minimum": rng.randint(-9, 0), "maximum": rng.randint(1, 99)}
    return {"type": kind, **(limits if kind != "boolean" else {})}


def _string(rng: random.Random, short: bool) -> dict[str, Any]:
    choice = rng.randrange(4)
    if choice == 0:
        pattern = rng.choice(PATTERNS[: 1 if short else None])
        return {"type": "string", "pattern": pattern}
    if choice == 1 or short:
        return {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 6)}
    return {"type": "string"}


def shown(tools: list[dict[str, Any]]) -> str:
    """For messages of failing tests."""
    return json.dumps(tools)
