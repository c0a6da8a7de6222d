"""Values of arguments: which types a schema allows, and what a written value means under it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_DEPTH = 16  # of references that lead to references
_MAX_BRANCHES = 256
_ORDER = ("string", "integer", "number", "boolean", "object", "array", "null")
_MISSING = object()
_SURROGATE = re.compile("[\ud800-\udfff]")


def resolve(schema: Any) -> Any:
    """A schema with the reference at its top followed, if it leads into its own definitions."""
    root = schema
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        target = _target(root, schema["$ref"])
        if target is _MISSING:
            return schema
        shared = {k: v for k, v in root.items() if k in ("$defs", "definitions")}
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        schema = {**shared, **target, **rest} if isinstance(target, Mapping) else target
    return schema


def branches(schema: Any) -> list[Any]:
    """The alternatives of a schema: unions taken apart, references followed.

    One that is built of too many is a schema that allows anything.
    """
    leaves: list[Any] = []
    rest = [schema]
    for _ in range(_MAX_BRANCHES):
        if not rest:
            return leaves
        part = resolve(rest.pop())
        parts = _parts(part)
        if parts is None:
            leaves.append(part)
        else:
            rest += reversed(parts)
    return [{}]


def _parts(schema: Any) -> list[Any] | None:
    """The members of a union; None: it is none."""
    if not isinstance(schema, Mapping):
        return None
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            shared = {k: v for k, v in schema.items() if k in ("$defs", "definitions", "type")}
            return [{**shared, **p} if isinstance(p, Mapping) else p for p in schema[word]]
    names = schema.get("type")
    if isinstance(names, list) and fixed_values(schema) is None:
        return [{**schema, "type": name} for name in names]
    return None


def fixed_values(schema: Any) -> list[Any] | None:
    """The values of `const` or `enum`; None: there is no such list."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else None


def kinds(schema: Any) -> list[str]:
    """Names of the JSON types that a schema allows, in its order; empty: any."""
    found: list[str] = []
    for branch in branches(schema):
        names = _branch_kinds(branch)
        if not names:
            return []
        found += [name for name in names if name not in found]
    return found


def _branch_kinds(branch: Any) -> list[str]:
    if not isinstance(branch, Mapping):
        return []
    if (values := fixed_values(branch)) is not None:
        return [kind for value in values for kind in _kinds_of(value)]
    names = branch.get("type")
    if isinstance(names, str):
        return ["number", "integer"] if names == "number" else [names]
    if isinstance(names, list):
        return [str(name) for name in names]
    if "properties" in branch:
        return ["object"]
    return ["array"] if "items" in branch else []


def _kinds_of(value: Any) -> list[str]:
    if value is None:
        return ["null"]
    if isinstance(value, bool):
        return ["boolean"]
    if isinstance(value, int):
        return ["integer", "number"]
    if isinstance(value, float):
        return ["number", "integer"] if value.is_integer() else ["number"]
    if isinstance(value, str):
        return ["string"]
    return ["array"] if isinstance(value, list) else ["object"]


def coerce(value: Any, schema: Any) -> Any:
    """A value that was given as text where the schema wants another type, as that type.

    Others, and what cannot be read, stay as they are: whoever executes the call says what is
    wrong, and the model can repair it.
    """
    if not isinstance(value, str):
        return value
    allowed = kinds(schema)
    return from_text(value, allowed) if allowed and "string" not in allowed else value


def keeps_text(schema: Any) -> bool:
    """Whether a string stays a string under a schema, whatever it says; None: undeclared."""
    allowed = kinds(schema)
    return not allowed or "string" in allowed


def keeps_raw_text(schema: Any) -> bool:
    """The same of a raw text (`text_value`)."""
    allowed = kinds(schema)
    if not allowed:
        return all(fixed_values(branch) is None for branch in branches(schema))
    return allowed == ["string"]


def text_value(text: str, schema: Any) -> Any:
    """What a raw text means under a schema."""
    for branch in branches(schema):
        for value in fixed_values(branch) or ():
            if text == (value if isinstance(value, str) else json.dumps(value)):
                return value
    return from_text(text, kinds(schema))


def from_text(text: str, allowed: list[str]) -> Any:
    """A raw text as one of the allowed types; where a string is allowed, text is a string.

    Exceptions to that: `null` where null is allowed, objects and lists where those are, and
    numbers and truth values that are allowed before the string is.
    """
    if not allowed or allowed == ["string"]:
        return text
    value = _read(text.strip(), allowed)
    if value is _MISSING:
        return text
    read = next((k for k in _kinds_of(value) if k in allowed), None)
    if read is None:
        return text
    if "string" in allowed and read in ("integer", "number", "boolean"):
        return value if allowed.index(read) < allowed.index("string") else text
    return value


def read_json(text: str) -> Any:
    """JSON, line breaks in strings allowed. Of a key that comes twice the first counts.

    Raises:
        ValueError: it is none, NaN and infinities included. RecursionError: it is too deep.
    """
    value = json.loads(text, strict=False, object_pairs_hook=first_of)
    json.dumps(value, allow_nan=False)
    return value


def first_of(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping in which the first value of a key counts: it may have been shown already."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        made.setdefault(key, value)
    return made


def as_json(value: Any) -> str:
    """JSON as it is handed on; half surrogates, which have no UTF-8 form, are escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return _SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", text)


def _read(text: str, allowed: list[str]) -> Any:
    lowered = text.lower()
    if "boolean" in allowed and lowered in ("true", "false"):
        return lowered == "true"
    if "null" in allowed and lowered in ("null", "none"):
        return None
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        return _read_python(text)
    if isinstance(value, float) and "number" not in allowed and value.is_integer():
        return int(value)
    return value


def _read_python(text: str) -> Any:
    """Lists and objects as Python writes them, with True and 'single quotes'."""
    if not text.startswith(("[", "{")) or len(text) > 1 << 16:
        return _MISSING
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _MISSING
    return value


def _target(root: Mapping[str, Any], reference: str) -> Any:
    if not reference.startswith("#/"):
        return _MISSING
    at: Any = root
    for key in reference[2:].split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(at, Mapping) or key not in at:
            return _MISSING
        at = at[key]
    return at
