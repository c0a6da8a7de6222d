"""Hermes, Qwen2.5, Qwen3 and many others: a JSON object between tags.

    <tool_call>
    {"name": "NAME", "arguments": {"KEY": VALUE}}
    </tool_call>

Further calls follow on the next line, each in its own tags.

Selected by `<tool_call>` in a template that has neither `<function=` (Qwen3-Coder's tags) nor
`<arg_key>` (GLM's).
"""

from __future__ import annotations

from functools import partial

from octavo.text.formats._calls import CallParser, Found, Place, Verdict, closed
from octavo.text.formats._declared import Tools
from octavo.text.formats._dialect import Dialect
from octavo.text.formats._json import as_call, parse, value_end
from octavo.text.formats._lark import Lark, further, json_call
from octavo.text.formats._parts import Growing, watch_json

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_BARE = '{"name": "'  # a call whose opening tag is missing


def dialect(source: str) -> Dialect | None:
    """This dialect, if the template asks for it."""
    if _OPENING not in source or "<function=" in source or "<arg_key>" in source:
        return None
    return Dialect("hermes", _OPENING, _parser, _add_rules)


def _parser(tools: Tools, in_parts: bool = False) -> CallParser:
    watch = partial(_watch, tools) if in_parts else None
    return CallParser(partial(_read, tools), (_OPENING, _BARE), (_CLOSING,), watch=watch)


def _watch(tools: Tools, text: str, at: int) -> Growing | None:
    is_tagged = text.startswith(_OPENING, at)
    return watch_json(tools, text, at + len(_OPENING)) if is_tagged else None


def _read(tools: Tools, text: str, at: int, place: Place, is_end: bool) -> Found | Verdict:
    tagged = text.startswith(_OPENING, at)
    if not tagged and not place.starts_line:
        return Verdict.TEXT
    start = at + len(_OPENING) if tagged else at
    start += len(text[start:]) - len(text[start:].lstrip())
    if start == len(text):
        return Verdict.TEXT if is_end else Verdict.WAIT
    end = value_end(text, start) if text[start] == "{" else start
    if end is None:
        return Verdict.TEXT if is_end else Verdict.WAIT
    call = as_call(tools, parse(text[start:end]))
    if call is None:
        return Verdict.TEXT
    after = closed(text, end, _CLOSING, is_end)
    if after is None:
        return Verdict.WAIT
    is_whole = after > end or tagged
    return Found((call,), after) if is_whole and (tagged or call.name in tools) else Verdict.TEXT


def _add_rules(lark: Lark, tools: Tools, many: bool) -> None:
    lark.add("call", json_call(lark, tools, "arguments"))
    lark.add("one", '"\\n" call "\\n</tool_call>"')
    lark.add("calls", "one" + (further(lark, f"{lark.tag(_OPENING)} one") if many else ""))
