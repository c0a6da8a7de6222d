"""Mistral: a control token, then JSON.

    [TOOL_CALLS][{"name": "NAME", "arguments": {"KEY": VALUE}}, ...]

Newer models name the function outside of the JSON and repeat the token for each call; some put
an id between:

    [TOOL_CALLS]NAME[ARGS]{"KEY": VALUE}
    [TOOL_CALLS]NAME[CALL_ID]abcdef123[ARGS]{"KEY": VALUE}

Selected by `[TOOL_CALLS]`, and the newer spelling by `[ARGS]`, in the template. Both are read. The
templates demand ids of nine letters and digits, so calls get such ones.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from functools import partial

from octavo.text.formats._calls import CallParser, Found, Place, Verdict
from octavo.text.formats._declared import Tools
from octavo.text.formats._dialect import Dialect
from octavo.text.formats._json import as_call, parse, value_end
from octavo.text.formats._lark import Lark, json_call
from octavo.text.formats._parts import Growing, JsonArguments, watch_json

_OPENING, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_HEAD = re.compile(
    r"\s*(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*(?P<id>\w+)\s*)?(?:\[ARGS\])?\s*(?=\{)"
)
_MAX_HEAD_CHARS = 512


def dialect(source: str) -> Dialect | None:
    """This dialect, if the template asks for it."""
    if _OPENING not in source:
        return None
    add_rules = partial(_add_rules, _ARGS in source, _ID in source)
    return Dialect("mistral", _OPENING, _parser, add_rules)


def _parser(tools: Tools, in_parts: bool = False) -> CallParser:
    watch = partial(_watch, tools) if in_parts else None
    return CallParser(partial(_read, tools), (_OPENING,), tags=(_ID, _ARGS), watch=watch)


def _watch(tools: Tools, text: str, at: int) -> Growing | None:
    start = at + len(_OPENING)
    head = _HEAD.match(text, start)
    if head is None:
        found = watch_json(tools, text, start)
        if found is not None:
            found.id = _new_id()
        return found
    if head["name"] not in tools:
        return None
    return JsonArguments(tools, head["name"], head.end(), head["id"] or _new_id())


def _new_id() -> str:
    """Nine letters and digits, as the templates demand."""
    return secrets.token_hex(5)[:9]


def _read(tools: Tools, text: str, at: int, place: Place, is_end: bool) -> Found | Verdict:
    start = at + len(_OPENING)
    rest = text[start:]
    start += len(rest) - len(rest.lstrip())
    head = _HEAD.match(text, start)
    if head is not None:
        start = head.end()
    elif start == len(text) or (text[start] not in "[{" and len(rest) < _MAX_HEAD_CHARS):
        return Verdict.TEXT if is_end else Verdict.WAIT
    end = value_end(text, start) if text[start] in "[{" else start
    if end is None:
        return Verdict.TEXT if is_end else Verdict.WAIT
    value = parse(text[start:end])
    if head is not None:
        value = {"name": head["name"], "arguments": value}
    values = value if isinstance(value, list) else [value]
    calls = [call for item in values if (call := as_call(tools, item)) is not None]
    given = head["id"] if head is not None else None
    named = [replace(call, id=given or _new_id()) for call in calls]
    return Found(tuple(named), end) if named else Verdict.TEXT


def _add_rules(outside: bool, has_id: bool, lark: Lark, tools: Tools, many: bool) -> None:
    if not outside:
        lark.add("call", json_call(lark, tools, "arguments"))
        more = ' (", " call)*' if many else ""
        lark.add("calls", f'"[" call{more} "]"')
        return
    between = f"({lark.tag(_ID)} /[a-zA-Z0-9]{{9}}/)? " if has_id else ""
    choices = [
        f"{lark.literal(tool.name)} {between}{lark.tag(_ARGS)} {lark.object(tool, f'args_{i}')}"
        for i, tool in enumerate(tools)
    ]
    lark.add("call", "\n  | ".join(choices))
    lark.add("calls", "call" + (f" ({lark.tag(_OPENING)} call)*" if many else ""))
