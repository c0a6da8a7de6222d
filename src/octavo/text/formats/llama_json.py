"""Llama 3.1 and later: the whole answer is a JSON object.

    {"name": "NAME", "parameters": {"KEY": VALUE}}

`<|python_tag|>` may stand before it. Several calls are separated by `;` or a line break. An object
counts as a call only at the beginning of an answer, and only with the name of a declared function:
everything else is an answer in JSON.

Selected by `<|python_tag|>`, or by "parameters" and "dictionary of argument name" in the template.
"""

from __future__ import annotations

import re
from functools import partial

from octavo.text.formats._calls import CallParser, Found, Place, Verdict
from octavo.text.formats._declared import Tools
from octavo.text.formats._dialect import Dialect
from octavo.text.formats._json import as_call, parse, value_end
from octavo.text.formats._lark import Lark, json_call
from octavo.text.formats._parts import Growing, watch_json
from octavo.types import ToolCall

_PYTHON = "<|python_tag|>"
_BEGINNINGS = ('{"name":"', '{"type":"function"', '{"function":')
_BETWEEN = re.compile(r"\s*;?\s*")


def dialect(source: str) -> Dialect | None:
    """This dialect, if the template asks for it."""
    if _PYTHON not in source and "dictionary of argument name" not in source:
        return None
    return Dialect("llama_json", '{"name": "', _parser, _add_rules, only_first=True)


def _parser(tools: Tools, in_parts: bool = False) -> CallParser:
    watch = partial(_watch, tools) if in_parts else None
    return CallParser(partial(_read, tools), (_PYTHON, "{"), watch=watch)


def _watch(tools: Tools, text: str, at: int) -> Growing | None:
    return watch_json(tools, text, at + len(_PYTHON) * text.startswith(_PYTHON, at))


def _read(tools: Tools, text: str, at: int, place: Place, is_end: bool) -> Found | Verdict:
    tagged = text.startswith(_PYTHON, at)
    if not tagged and not place.is_first:
        return Verdict.TEXT
    start, end = at + len(_PYTHON) * tagged, at
    calls: list[ToolCall] = []
    while True:
        start = _BETWEEN.match(text, start).end()  # type: ignore[union-attr]
        one = _object(tools, text, start)
        if one is Verdict.WAIT and not is_end:
            return Verdict.WAIT
        if not isinstance(one, tuple):
            return Found(tuple(calls), end) if calls else Verdict.TEXT
        call, start = one
        calls.append(call)
        end = start


def _object(tools: Tools, text: str, at: int) -> tuple[ToolCall, int] | Verdict:
    """One call and its end."""
    seen = "".join(text[at : at + 64].split())
    if not any(seen.startswith(b) or b.startswith(seen) for b in _BEGINNINGS):
        return Verdict.TEXT
    end = value_end(text, at)
    if end is None:
        return Verdict.WAIT
    call = as_call(tools, parse(text[at:end]))
    return (call, end) if call is not None and call.name in tools else Verdict.TEXT


def _add_rules(lark: Lark, tools: Tools, many: bool) -> None:
    whole = json_call(lark, tools, "parameters")
    opening = '"{\\"name\\": \\"" '
    lark.add("rest", whole.removeprefix(opening))
    lark.add("calls", "rest" + (f' ("; " {opening} rest)*' if many else ""))
