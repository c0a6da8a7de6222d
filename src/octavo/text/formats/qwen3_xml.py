"""Qwen3-Coder, Qwen3.5 and later: tags around raw values.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE, as many lines as it likes
    </parameter>
    </function>
    </tool_call>

It only looks like XML. A string stands there as it is, whatever signs are in it; objects and lists
are JSON. A value ends at the first `</parameter>` on a line of its own that is followed by
`<parameter=` or `</function>`. Further calls follow on the next line, and then nothing.

Selected by `<function=` in the template.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from octavo.text.formats._calls import CallParser, Found, Place, Verdict, closed
from octavo.text.formats._declared import Tool, Tools
from octavo.text.formats._dialect import Dialect
from octavo.text.formats._lark import Lark, all_there, each_once, further, some_left
from octavo.text.formats._parts import Growing
from octavo.text.formats._strings import raw_string
from octavo.text.formats._values import (
    as_json,
    branches,
    fixed_values,
    keeps_raw_text,
    kinds,
    text_value,
)
from octavo.text.split import overlap

_OPENING, _FUNCTION, _PARAMETER = "<tool_call>", "<function=", "<parameter="
_STRAYS = ("</tool_call>", "</function>", "</parameter>")
_MAX_NAME_CHARS = 256
_VALUE_END = r"\n<\/parameter>\n"  # to the grammar

_NEXT = r"(?=<parameter=|</function>|</tool_call>|<tool_call>)"
# After a value that began on its own line, and after one that did not.
_END = re.compile(rf"\n</parameter>\s*(?:</parameter>\s*)*(?:{_NEXT}|\Z)")
_LOOSE_END = re.compile(rf"\n?</parameter>\s*(?:</parameter>\s*)*(?:{_NEXT}|\Z)")
_LINE_END = re.compile(r"\n?(?=<parameter=[^>\n]+>|</function>\s*(?:</tool_call>|\Z))")
# What might end a value, with the line break that belongs to it.
_ENDINGS = (*_STRAYS, _PARAMETER, _OPENING)
_TAGS = (*_ENDINGS, *(f"\n{tag}" for tag in _ENDINGS))
_TAG = re.compile("|".join(rf"\n?{re.escape(tag)}" for tag in _ENDINGS))
_VALUE_ENDS = re.compile(r"\n</parameter>\s*(?=<parameter=|</function>)")
_HEAD = re.compile(r"<tool_call>\s*<function=([^>\n]{1,256})>")
_KEY = re.compile(r"\s*<parameter=([^>\n]+)>")
_EMPTY = "\n</parameter>"
_SWALLOWED = re.compile(r"\n</function>\s*</tool_call>\s*<tool_call>\s*<function=")


def dialect(source: str) -> Dialect | None:
    """This dialect, if the template asks for it."""
    if _FUNCTION not in source:
        return None
    return Dialect("qwen3_xml", _OPENING, _parser, _add_rules)


def _parser(tools: Tools, in_parts: bool = False) -> CallParser:
    watch = partial(_watch, tools) if in_parts else None
    return CallParser(partial(_read, tools), (_OPENING, _FUNCTION), _STRAYS, watch=watch)


def _watch(tools: Tools, text: str, at: int) -> Growing | None:
    head = _HEAD.match(text, at)
    if head is None or head[1] not in tools:
        return None
    return _Arguments(tools, head[1], head.end())


def _read(tools: Tools, text: str, at: int, place: Place, is_end: bool) -> Found | Verdict:
    tagged = text.startswith(_OPENING, at)
    start = at + len(_OPENING) if tagged else at
    start += len(text[start:]) - len(text[start:].lstrip())
    if not text.startswith(_FUNCTION, start):
        may_come = _FUNCTION.startswith(text[start:]) and not is_end
        return Verdict.WAIT if may_come else Verdict.TEXT
    end = text.find(">", start)
    name = text[start + len(_FUNCTION) : end if end >= 0 else None]
    if "\n" in name or len(name) > _MAX_NAME_CHARS or (end < 0 and is_end):
        return Verdict.TEXT
    if end < 0:
        return Verdict.WAIT
    name = name.strip()
    # Without the outer tag only what is certainly a call counts.
    if not name or not (tagged or (place.starts_line and name in tools)):
        return Verdict.TEXT
    body = _Body(text, end + 1, tools.get(name), is_end)
    stop = body.read()
    if stop is None:
        return Verdict.TEXT if is_end else Verdict.WAIT
    return Found((tools.call_of_texts(name, body.arguments),), stop)


class _Body:
    """What stands between `<function=...>` and its end."""

    def __init__(self, text: str, start: int, tool: Tool | None, is_end: bool) -> None:
        self.arguments: dict[str, str] = {}
        self._text, self._start = text, start
        self._required = tool.required if tool else frozenset()
        self._is_end = is_end

    def read(self) -> int | None:
        """Fill in the arguments -> where the call ends; None: its end is not there.

        If what the strict rules find lacks something required, the loose ones are tried.
        """
        whole, stop = self._text, self._walk(strict=True)
        if stop is None and not self._is_end:
            return None
        if stop is not None and self._required <= self.arguments.keys():
            return stop
        strict = self.arguments
        if stop is not None:
            self._text, self._is_end = whole[:stop], True
        loose = self._walk(strict=False)
        if loose is None or (stop is not None and len(self.arguments) <= len(strict)):
            self.arguments = strict
            return stop
        return stop or loose

    def _walk(self, strict: bool) -> int | None:
        self.arguments = {}
        text, at = self._text, self._start
        while True:
            at += len(text[at:]) - len(text[at:].lstrip())
            if text.startswith(_PARAMETER, at):
                step = self._take(at + len(_PARAMETER), strict)
                if step is None:
                    return None
                at = step
            elif text.startswith("</parameter>", at):
                at += len("</parameter>")
            elif text.startswith("</function>", at):
                return closed(text, at + len("</function>"), "</tool_call>", self._is_end)
            elif text.startswith("</tool_call>", at):
                return at + len("</tool_call>")
            elif text.startswith(_OPENING, at):
                return at
            elif self._is_end and at == len(text):
                # Cut short: it counts only if nothing required is missing.
                return at if self._required <= self.arguments.keys() else None
            else:
                following = text.find("<", at + 1)
                if following < 0 or not self._is_known(at):
                    return None
                at = following

    def _is_known(self, at: int) -> bool:
        """Whether the text from here on is more than the beginning of a tag."""
        tags = (_PARAMETER, _OPENING, *_STRAYS)
        return self._is_end or not any(tag.startswith(self._text[at:]) for tag in tags)

    def _take(self, at: int, strict: bool) -> int | None:
        """One argument, from its name on -> where what follows begins."""
        text = self._text
        name_end = text.find(">", at)
        if name_end < 0:
            return None
        start = name_end + 1
        own_line = text.startswith("\n", start)
        found = (_END if own_line else _LOOSE_END).search(text, start)
        if found and found.end() == len(text) and not self._is_end:
            found = None  # what follows is not there yet
        if not strict:
            early = _LINE_END.search(text, start)
            if early and (found is None or early.start() < found.start()):
                found = early
        elif found and (early := _SWALLOWED.search(text, start, found.start())):
            return self._keep(text[at:name_end], start, early.start(), early.start())
        if found is None:
            return None
        return self._keep(text[at:name_end], start, found.start(), found.end())

    def _keep(self, name: str, start: int, end: int, after: int) -> int:
        """One line break on either side of the value is not part of it. Said again: the last."""
        start += self._text.startswith("\n", start) and start < end
        self.arguments.setdefault(name.strip(), self._text[start:end])
        return after


class _Arguments:
    """Implements `Growing`: the arguments whose names begin at `at` or behind it.

    Certain is a value's text before anything that looks like a tag; a value that holds such a text
    is left to the end of the call, and all that follow it.
    """

    def __init__(self, tools: Tools, name: str, at: int) -> None:
        self.name = name
        self.id = ""
        tool = tools.get(name)
        self._schemas = tool.properties if tool else {}
        self._at = at
        self._in_string = False
        self._seen: set[str] = set()

    def more(self, text: str) -> str:
        shown = ""
        while (part := self._string(text) if self._in_string else self._next(text)) is not None:
            shown += part
        return shown

    def _next(self, text: str) -> str | None:
        """The beginning of an argument, or all of it."""
        key = _KEY.match(text, self._at)
        start = None if key is None else _own_line(text, key.end())
        if key is None or start is None:
            return None
        name = key[1].strip()
        schema, is_new = self._schemas.get(name), name not in self._seen
        head = f"{', ' if self._seen else '{'}{as_json(name)}: " if is_new else ""
        if is_new and keeps_raw_text(schema):
            self._at, self._in_string = start, True
            self._seen.add(name)
            return f'{head}"'
        found = _TAG.search(text, start)
        end = _VALUE_ENDS.match(text, found.start()) if found else None
        if found is None or end is None:
            return None
        self._at = end.end()
        self._seen.add(name)
        return f"{head}{as_json(text_value(text[start : found.start()], schema))}" if is_new else ""

    def _string(self, text: str) -> str | None:
        found = _TAG.search(text, self._at)
        if found is None:
            certain = len(text) - overlap(text[self._at :], _TAGS)
            part, self._at = text[self._at : certain], max(self._at, certain)
            return as_json(part)[1:-1] if part else None
        part, self._at = text[self._at : found.start()], found.start()
        end = _VALUE_ENDS.match(text, found.start())
        if end is None:  # not yet, or the tag is part of the value
            return as_json(part)[1:-1] if part else None
        self._at, self._in_string = end.end(), False
        return as_json(part)[1:-1] + '"'


def _own_line(text: str, at: int) -> int | None:
    """Where a value begins whose tag ends at `at`; None: not known, or not on its own line."""
    if _EMPTY.startswith(text[at:]) and text[at:] != _EMPTY:
        return None
    if text.startswith(_EMPTY, at):
        return at
    return at + 1 if text.startswith("\n", at) else None


# The grammar.


def _add_rules(lark: Lark, tools: Tools, many: bool) -> None:
    functions = [_function(lark, tool, f"call_{i}") for i, tool in enumerate(tools)]
    lark.add("function", " | ".join(functions))
    lark.add("one", '"\\n<function=" function "\\n</tool_call>"')
    lark.add("calls", "one" + (further(lark, f"{lark.tag(_OPENING)} one") if many else ""))


def _function(lark: Lark, tool: Tool, stem: str) -> str:
    """From the name to `</function>`."""
    head = lark.literal(tool.name + ">\n")
    if not tool.properties:
        others = f"{_any_argument(lark)}* " if tool.is_open else ""
        return lark.add(stem, f'{head} {others}"</function>"')
    done, left = all_there(len(tool.required)), some_left(len(tool.properties))
    keys = {
        name: f"{lark.literal(name + '>' + chr(10))} {_value(lark, schema, stem, tool)}"
        for name, schema in tool.properties.items()
    }
    lark.add(f"{stem}_key::_", "\n  | ".join(each_once(keys, lambda v, bits: f"{v}::{bits}")))
    more = f'"<parameter=" {stem}_key::_{left}'
    lark.add(f"{stem}_next::_", f'"</function>"{done}\n  | {more}')
    return lark.add(stem, f"{head} {stem}_next::0x0")


def _any_argument(lark: Lark) -> str:
    text = lark.lazy("text_", r'/(?s:.*)/ "\n</parameter>\n"')
    return lark.shared("other_", f'"<parameter=" /[A-Za-z_][A-Za-z0-9_.-]*/ ">\\n" {text}')


def _value(lark: Lark, schema: Any, stem: str, tool: Tool) -> str:
    """The name of a rule for a value and all that follows it in the call."""
    parts = branches(schema)
    if any(_is_free(branch) for branch in parts):
        return _free_value(lark, stem, len(tool.properties), len(tool.required))
    forms = " | ".join(form for branch in parts for form in _forms(lark, branch))
    return _named(lark, f"{stem}_value", f"({forms}) {stem}_next::_")


def _is_free(branch: Any) -> bool:
    """Whether any text will do."""
    if not kinds(branch):
        return True
    is_fixed = fixed_values(branch) is not None
    return not is_fixed and "string" in kinds(branch) and raw_string(branch, _VALUE_END) is None


def _free_value(lark: Lark, stem: str, n: int, n_required: int) -> str:
    """A raw text to its end, which is part of the same token of the grammar.

    While something required is missing the text cannot end the call, nor look as if. An end right
    behind the tag is that of an empty text, as it is read.
    """
    last = lark.lazy("last_", r"/((?s:.*)\n)?<\/parameter>\n<\/function>/")
    following = lark.lazy("next_", r"/((?s:.*)\n)?<\/parameter>\n<parameter=/")
    done, left = f"is_ones([0:{min(n_required, 64)}])", f"not(is_ones([0:{min(n, 64)}]))"
    if not n_required:
        body = f"{last}\n  | {following} {stem}_key::_ %if {left}"
        return _named(lark, f"{stem}_value", body)
    only = lark.lazy(
        "must_",
        r"/((?s:.*)\n)?<\/parameter>\n<parameter=/ & ~/((?s:.*)\n)?<\/parameter>\n<\/f(?s:.*)/",
    )
    body = (
        f"{last} %if {done}\n  | {following} {stem}_key::_ %if and({done}, {left})"
        f"\n  | {only} {stem}_key::_ %if not({done})"
    )
    return _named(lark, f"{stem}_value", body)


def _named(lark: Lark, prefix: str, body: str) -> str:
    return lark.shared(f"{prefix}_", body, "::_")


def _forms(lark: Lark, branch: Any) -> list[str]:
    """Rules for a value that is not any text, and its end."""
    end = "\n</parameter>\n"
    if (values := fixed_values(branch)) is not None:
        texts = [v if isinstance(v, str) else json.dumps(v) for v in values]
        return [lark.literal(text + end) for text in texts]
    if "string" in kinds(branch) and (terminal := raw_string(branch, _VALUE_END)):
        return [lark.lazy("text_", terminal)]
    return [f"{lark.json(branch)} {lark.literal(end)}"]
