"""What requests may hold, for /openapi.json: fields that are read by hand, and ranges of numbers.

The readers beside this file decide; a test holds what is said here against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import WithJsonSchema

from octavo.types import RANGES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_ANY_TEXT: Schema = {"anyOf": [_TEXT, {"type": "null"}]}
_FREE: Schema = {"type": "object", "additionalProperties": True}


def _object(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(of: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": of, **limits}


def _or(*kinds: Schema) -> Schema:
    return {"anyOf": list(kinds)}


def _word(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


_NULL: Schema = {"type": "null"}
_PART = _object(("text",), type=_word("text", "input_text", "output_text"), text=_TEXT)
_CONTENT = _or(_TEXT, _list(_or(_TEXT, _PART)), _NULL)
_FUNCTION_CALL = _object(("name",), name=_NAME, arguments=_or(_TEXT, _FREE, _NULL))
_CALL = _object(("function",), id=_TEXT, type=_word("function"), function=_FUNCTION_CALL)
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MESSAGE = _object(
    ("role",),
    role=_word(*_ROLES),
    content=_CONTENT,
    reasoning_content=_ANY_TEXT,
    tool_calls=_or(_list(_CALL), _NULL),
    tool_call_id=_ANY_TEXT,
    name=_ANY_TEXT,
)
_FUNCTION = _object(("name",), name=_NAME, description=_TEXT, parameters=_FREE)
_TOOL = _object(("type", "function"), type=_word("function"), function=_FUNCTION)
_FLAT_TOOL = _object(
    ("type", "name"),
    type=_word("function", "custom"),
    name=_NAME,
    description=_TEXT,
    parameters=_FREE,
)
_NAMED = _object(("name",), name=_NAME)
_CHOICE = _or(
    _word("auto", "required", "none"),
    _object(("type", "function"), type=_word("function"), function=_NAMED),
    _object(("type", "name"), type=_word("function", "custom"), name=_NAME),
    _NULL,
)
_SCHEMA_FORM = _object(
    ("type", "json_schema"),
    type=_word("json_schema"),
    json_schema=_object(("schema",), name=_TEXT, schema=_FREE),
)
_PLAIN_FORM = _object(("type",), type=_word("text", "json_object"))


def _call_item(kind: str, given: str) -> Schema:
    fields = {"type": _word(kind), "call_id": _TEXT, "name": _NAME, given: _TEXT}
    return _object(tuple(fields), **fields)


_ITEM = _or(
    _object(
        ("role", "content"),
        type=_word("message"),
        role=_word("user", "assistant", "system", "developer"),
        content=_CONTENT,
    ),
    _object(("type",), type=_word("reasoning"), summary=_list(_PART), content=_list(_PART)),
    _call_item("function_call", "arguments"),
    _call_item("custom_tool_call", "input"),
    _object(
        ("type", "call_id", "output"),
        type=_word("function_call_output", "custom_tool_call_output"),
        call_id=_TEXT,
        output=_CONTENT,
    ),
    _object(("type", "id"), type=_word("item_reference"), id=_TEXT),
)

_TEXT_BLOCK = _object(("type", "text"), type=_word("text"), text=_TEXT)
_BLOCK = _or(
    _TEXT_BLOCK,
    _object(("type", "thinking"), type=_word("thinking"), thinking=_TEXT, signature=_TEXT),
    _object(
        ("type", "id", "name", "input"), type=_word("tool_use"), id=_TEXT, name=_NAME, input=_FREE
    ),
    _object(
        ("type", "tool_use_id"),
        type=_word("tool_result"),
        tool_use_id=_TEXT,
        content=_or(_TEXT, _list(_TEXT_BLOCK)),
        is_error={"type": "boolean"},
    ),
)
_TURN = _object(
    ("role", "content"),
    role=_word("user", "assistant", "system"),
    content=_or(_TEXT, _list(_BLOCK)),
)
_CLAUDE_TOOL = _object(("name",), name=_NAME, description=_TEXT, input_schema=_FREE)
_CLAUDE_CHOICE = _or(
    _object(("type",), type=_word("auto", "any", "none")),
    _object(("type", "name"), type=_word("tool"), name=_NAME),
    _NULL,
)

_BIAS: Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]{1,9}$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
}
_ID: Schema = {"type": "integer", "minimum": 0}
_IDS = _list(_ID, minItems=1)
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

Object = dict[str, Any]
Messages = Annotated[list[Object] | None, WithJsonSchema(_list(_MESSAGE, minItems=1))]
Tools = Annotated[list[Object] | None, WithJsonSchema(_or(_list(_or(_TOOL, _FLAT_TOOL)), _NULL))]
Choice = Annotated[str | Object | None, WithJsonSchema(_CHOICE)]
Format = Annotated[Object | None, WithJsonSchema(_or(_PLAIN_FORM, _SCHEMA_FORM, _NULL))]
Items = Annotated[str | list[Object] | None, WithJsonSchema(_or(_TEXT, _list(_ITEM, minItems=1)))]
Turns = Annotated[list[Object], WithJsonSchema(_list(_TURN, minItems=1))]
System = Annotated[
    str | list[Object] | None,
    WithJsonSchema(_or(_TEXT, _list(_TEXT_BLOCK), _NULL)),
]
ClaudeTools = Annotated[list[Object] | None, WithJsonSchema(_or(_list(_CLAUDE_TOOL), _NULL))]
ClaudeChoice = Annotated[Object | None, WithJsonSchema(_CLAUDE_CHOICE)]
Bias = Annotated[
    dict[str, float] | list[tuple[int, float | bool]] | None, WithJsonSchema(_or(_BIAS, _NULL))
]
Prompts = Annotated[
    str | list[int] | list[str] | list[list[int]],
    WithJsonSchema(
        _or(
            _TEXT,
            _list(_TEXT, minItems=1, maxItems=32),
            _IDS,
            _list(_IDS, minItems=1, maxItems=32),
        )
    ),
]
Mixed = Annotated[
    str | list[int | str] | None, WithJsonSchema(_or(_TEXT, _list(_or(_ID, _TEXT), minItems=1)))
]
Text = Annotated[str | None, WithJsonSchema(_TEXT)]
Ids = Annotated[list[int], WithJsonSchema(_list(_ID))]
Base64 = Annotated[
    str, WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": _BASE64})
]
Never = WithJsonSchema(_NULL)  # of fields that are refused, so that nobody takes them for ignored

# Fields of requests, and the sampling parameter whose range they have.
_SAME = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "dry_penalty_last_n": "dry_last_n",
}


def add_ranges(schema: Schema) -> None:
    """Say the ranges of sampling parameters in a body's schema."""
    ranges = {name: (low, high) for name, low, high in RANGES if name != "seed"}
    for name, field in schema["properties"].items():
        low, high = ranges.get(_SAME.get(name, name), (None, None))
        for kind in field.get("anyOf", ()) if low is not None else ():
            if kind["type"] in ("integer", "number"):
                kind.setdefault("minimum", low)
                kind.setdefault("maximum", high)


def one_of(*names: str) -> Callable[[Schema], None]:
    """Say that a body needs one of these fields at least, and the ranges."""

    def add(schema: Schema) -> None:
        add_ranges(schema)
        schema["anyOf"] = [{"required": [name]} for name in names]

    return add
