"""Whether calls are the right ones, by the published rules of the Berkeley leaderboard.

A rule of its own, taken over with its corners, so that figures can be compared: texts are compared
without case, blanks and `,./-_*^`; a whole number may stand for a float as an argument, but not
inside of a list; lists are compared in order; a value of another type is right if an answer has
that type. Only one level of nesting is looked into. Calls may come in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.types import ToolCall

Declaration = Mapping[str, Any]
Expected = Mapping[str, Mapping[str, Sequence[Any]]]  # name -> argument -> values that are right

_TYPES: dict[str, type] = {
    "string": str,
    "any": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
}
_IGNORED = re.compile(r"[ ,./\-_*^]")


def fault(
    functions: Sequence[Declaration], calls: Sequence[ToolCall], expected: Sequence[Expected]
) -> str:
    """What is wrong with the calls of an answer; "" if they are right.

    Faults: count, function, missing, unexpected, type, value, left out. Of several calls the
    first expected one that none is right for; its fault is that of the last call tried.
    """
    if len(calls) != len(expected):
        return "count"
    declared = {function["name"]: function for function in functions}
    left = list(calls)
    for one in expected:
        (name,) = one
        found = ""
        for call in left:
            found = call_fault(declared[name], call, one[name])
            if not found:
                left.remove(call)
                break
        if found:
            return found
    return ""


def call_fault(function: Declaration, call: ToolCall, expected: Mapping[str, Sequence[Any]]) -> str:
    """What is wrong with one call; "" if it is right."""
    if call.name != function["name"]:
        return "function"
    given = json.loads(call.arguments)
    declared = function["parameters"]["properties"]
    if any(name not in given for name in function["parameters"]["required"]):
        return "missing"
    for name, value in given.items():
        if name not in declared or name not in expected:
            return "unexpected"
        if found := _argument_fault(declared[name], value, expected[name]):
            return found
    if any(name not in given and "" not in values for name, values in expected.items()):
        return "left out"
    return ""


def _argument_fault(declared: Declaration, value: Any, right: Sequence[Any]) -> str:
    kind = _TYPES[declared["type"]]
    inner = _TYPES[declared["items"]["type"]] if kind is list else None
    if declared["type"] == "float" and _is(value, int):
        value = float(value)
    if not _has_type(value, kind, right) or not _have_type(value, kind, inner, right):
        return "type"
    return "" if _is_right(value, kind, inner, right) else "value"


def _answer_type(right: Sequence[Any]) -> type | None:
    """The type of the first answer; None: it can only be left out."""
    return next((type(answer) for answer in right if answer != ""), None)


def _has_type(value: Any, kind: type, right: Sequence[Any]) -> bool:
    return _is(value, kind) or _is(value, _answer_type(right))


def _is(value: Any, kind: type | None) -> bool:
    """Of exactly this type: True is no whole number here."""
    return type(value) is kind


def _have_type(value: Any, kind: type, inner: type | None, right: Sequence[Any]) -> bool:
    """Whether a list's items have the types of those in one of the answers."""
    if inner is None or not _is(value, kind):
        return True
    return any(
        not isinstance(answer, list) or all(_has_type(item, inner, answer) for item in value)
        for answer in right
    )


def _is_right(value: Any, kind: type, inner: type | None, right: Sequence[Any]) -> bool:
    # Where the answers are of another type than declared, they are variables: compared as such.
    if not _is(value, kind) or _answer_type(right) not in (kind, None):
        return value in right
    if kind is dict:
        return any(answer != "" and _same_object(value, answer) for answer in right)
    if inner is dict:
        return any(_same_objects(value, answer) for answer in right)
    if kind is list:
        return _plain_items(value) in [_plain_items(a) for a in right if isinstance(a, (list, str))]
    return _plain(value) in [_plain(answer) for answer in right]


def _same_object(value: Any, answer: Mapping[str, Sequence[Any]]) -> bool:
    """`answer` has the right values of each key, "" where it may be left out."""
    if not isinstance(value, Mapping) or any(key not in answer for key in value):
        return False
    if any(_plain(value[key]) not in _plain_items(answer[key]) for key in value):
        return False
    return all(key in value or "" in values for key, values in answer.items())


def _same_objects(value: Sequence[Any], answer: Sequence[Any]) -> bool:
    if len(value) != len(answer):
        return False
    pairs = zip(value, answer, strict=True)
    return all(wanted != "" and _same_object(item, wanted) for item, wanted in pairs)


def _plain(value: Any) -> Any:
    """A text as it is compared; other values as they are."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _plain_items(values: Sequence[Any]) -> list[Any]:
    return [_plain(value) for value in values]
