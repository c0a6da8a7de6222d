"""Gemma: a notation of its own, in which a control token stands for the quotes of a string.

    <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:12,KEY:[true,<|"|>TEXT<|"|>],KEY:{KEY:null}}<tool_call|>

FunctionGemma writes the same with other tokens:

    <start_function_call>call:NAME{KEY:<escape>TEXT<escape>}<end_function_call>

Text between the quotes is raw. Keys are bare. Further calls follow at once.

Selected by `<|tool_call>` or `<start_function_call>` in the template. Gemma 3's own template knows
no tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from octavo.record import dataclass
from octavo.text.formats._calls import CallParser, Found, Place, Verdict, closed
from octavo.text.formats._declared import Tools
from octavo.text.formats._dialect import Dialect
from octavo.text.formats._lark import Lark
from octavo.text.formats._parts import Growing
from octavo.text.formats._strings import raw_string
from octavo.text.formats._values import (
    as_json,
    branches,
    coerce,
    first_of,
    fixed_values,
    keeps_text,
    read_json,
)
from octavo.text.split import overlap

_HEAD = re.compile(r"\s*call:\s*([^\s{}]+)\s*(?=\{)")
_WORD = re.compile(r"[^\s,:{}\[\]\"]+")
_MAX_HEAD_CHARS = 256
_MAX_DEPTH = 32
_MAX_FORMS = 4000  # of values in a grammar; further ones may be anything


@dataclass(frozen=True)
class Tokens:
    """How a version of the notation spells its signs."""

    opening: str
    closing: str
    quote: str


_VERSIONS = (
    Tokens("<|tool_call>", "<tool_call|>", '<|"|>'),
    Tokens("<start_function_call>", "<end_function_call>", "<escape>"),
)


def dialect(source: str) -> Dialect | None:
    """This dialect, if the template asks for it."""
    tokens = next((t for t in _VERSIONS if t.opening in source), None)
    if tokens is None:
        return None
    add_rules = partial(_add_rules, tokens)
    return Dialect("gemma", tokens.opening, partial(_parser, tokens), add_rules)


def _parser(tokens: Tokens, tools: Tools, in_parts: bool = False) -> CallParser:
    read = partial(_read, tokens, tools)
    watch = partial(_watch, tokens, tools) if in_parts else None
    return CallParser(read, (tokens.opening,), (tokens.closing,), (tokens.quote,), watch)


def _watch(tokens: Tokens, tools: Tools, text: str, at: int) -> Growing | None:
    head = _HEAD.match(text, at + len(tokens.opening))
    if head is None or head[1] not in tools:
        return None
    return _Arguments(tools, head[1], head.end(), tokens.quote)


def _read(
    tokens: Tokens, tools: Tools, text: str, at: int, place: Place, is_end: bool
) -> Found | Verdict:
    start = at + len(tokens.opening)
    head = _HEAD.match(text, start)
    if head is None:
        rest = text[start : start + _MAX_HEAD_CHARS].lstrip()
        may_come = "call:".startswith(rest[:5]) or (rest.startswith("call:") and "{" not in rest)
        waits = may_come and len(rest) < _MAX_HEAD_CHARS and not is_end
        return Verdict.WAIT if waits else Verdict.TEXT
    notation = _Notation(text, head.end(), tokens.quote)
    try:
        arguments = notation.value(0)
    except _CutError:
        return Verdict.TEXT if is_end else Verdict.WAIT
    except ValueError:
        return Verdict.TEXT
    end = closed(text, notation.at, tokens.closing, is_end)
    return Verdict.WAIT if end is None else Found((tools.call(head[1], arguments),), end)


class _CutError(Exception):
    """The text ends before the value does."""


class _Notation:
    """Reads one value, from `at` on."""

    def __init__(self, text: str, at: int, quote: str) -> None:
        self.at = at
        self._text = text
        self._quotes = (quote, '"')

    def value(self, depth: int) -> Any:
        """The value at the place reached.

        Raises:
            _CutError: it is not whole. ValueError: it is none.
        """
        if depth > _MAX_DEPTH:
            raise ValueError("too deep")
        sign = self.peek()
        if sign == "{":
            pairs = self._items("}", lambda: (self.key(), self.value(depth + 1)))
            return first_of(pairs)
        if sign == "[":
            return self._items("]", lambda: self.value(depth + 1))
        quoted = self._quoted()
        return self._bare() if quoted is None else quoted

    def _items(self, closing: str, item: Any) -> list[Any]:
        self.at += 1
        items = []
        while (sign := self.peek()) != closing:
            if sign == ",":
                self.at += 1
            else:
                items.append(item())
        self.at += 1
        return items

    def key(self) -> str:
        """A key and the sign behind it."""
        key = self._quoted()
        key = self._word() if key is None else key
        if self.peek() != ":":
            raise ValueError("a key without a value")
        self.at += 1
        return key

    def _quoted(self) -> str | None:
        self.peek()
        quote = self.opening_quote()
        if not quote:
            return None
        start = self.at + len(quote)
        end = self._text.find(quote, start)
        if end < 0:
            raise _CutError
        self.at = end + len(quote)
        return self._text[start:end]

    def opening_quote(self) -> str:
        """The quote that stands here; "" if there is none.

        Raises:
            _CutError: half of one.
        """
        for quote in self._quotes:
            if self._text.startswith(quote, self.at):
                return quote
            if quote.startswith(self._text[self.at :]):
                raise _CutError
        return ""

    def _bare(self) -> Any:
        word = self._word()
        try:
            return read_json(word.lower() if word in ("True", "False") else word)
        except ValueError:
            return None if word in ("None", "null") else word

    def _word(self) -> str:
        found = _WORD.match(self._text, self.at)
        if found is None:
            raise ValueError("no value")
        if found.end() == len(self._text):
            raise _CutError
        self.at = found.end()
        return found.group()

    def peek(self) -> str:
        """The next sign that is no blank."""
        while self.at < len(self._text):
            if not self._text[self.at].isspace():
                return self._text[self.at]
            self.at += 1
        raise _CutError


class _Arguments:
    """Implements `Growing`: an object that begins at `at`."""

    def __init__(self, tools: Tools, name: str, at: int, quote: str) -> None:
        self.name = name
        self.id = ""
        tool = tools.get(name)
        self._schemas = tool.properties if tool else {}
        self._quote = quote
        self._at = at + 1
        self._ends_at = ""  # the quote of the string that is open
        self._seen: set[str] = set()

    def more(self, text: str) -> str:
        shown = ""
        try:
            while (part := self._string(text) if self._ends_at else self._member(text)) is not None:
                shown += part
        except (_CutError, ValueError):  # the rest comes with the end of the call
            pass
        return shown

    def _member(self, text: str) -> str | None:
        notation = _Notation(text, self._at, self._quote)
        while notation.peek() == ",":
            notation.at += 1
        if notation.peek() == "}":
            return None
        name = notation.key()
        schema, is_new = self._schemas.get(name), name not in self._seen
        head = f"{', ' if self._seen else '{'}{as_json(name)}: " if is_new else ""
        notation.peek()
        quote = notation.opening_quote()
        if quote and is_new and keeps_text(schema):
            self._at, self._ends_at = notation.at + len(quote), quote
            self._seen.add(name)
            return f'{head}"'
        value = coerce(notation.value(1), schema)
        self._at = notation.at
        self._seen.add(name)
        return f"{head}{as_json(value)}" if is_new else ""

    def _string(self, text: str) -> str | None:
        quote, rest = self._ends_at, text[self._at :]
        before, found, _ = rest.partition(quote)
        if not found:
            before = rest[: len(rest) - overlap(rest, (quote,))]
            if not before:
                return None
        self._at += len(before) + len(found)
        self._ends_at = "" if found else quote
        return as_json(before)[1:-1] + ('"' if found else "")


# The grammar.


def _add_rules(tokens: Tokens, lark: Lark, tools: Tools, many: bool) -> None:
    writer = _Writer(lark, tokens.quote)
    choices = []
    for i, tool in enumerate(tools):
        items = {
            name: f"{lark.literal(name + ':')} {writer.value(schema, f'v{i}_{at}', 0)}"
            for at, (name, schema) in enumerate(tool.properties.items())
        }
        arguments = writer.anything("object")
        if not tool.is_open:
            arguments = lark.members(f"args_{i}", items, tool.required, "{", ",", "}")
        choices.append(f"{lark.literal(tool.name)} {arguments}")
    lark.add("one", f'"call:" ({" | ".join(choices)}) {lark.tag(tokens.closing)}')
    lark.add("calls", "one" + (f" ({lark.tag(tokens.opening)} one)*" if many else ""))


class _Writer:
    """Schemas -> rules of the notation. What a rule cannot say is left open."""

    def __init__(self, lark: Lark, quote: str) -> None:
        self._lark = lark
        self._n_forms = 0
        self._quote = lark.tag(quote)
        # A control token cannot be part of a text; a quote that is spelled ends it.
        self._end = "" if lark.is_control(quote) else re.escape(quote).replace("/", r"\/")

    def value(self, schema: Any, stem: str, depth: int) -> str:
        """A rule for a value."""
        forms = [
            self._form(branch, f"{stem}_{i}", depth) for i, branch in enumerate(branches(schema))
        ]
        return f"({' | '.join(forms)})"

    def anything(self, kind: str = "") -> str:
        """A rule for any value, or any of a type."""
        lark = self._lark
        if not kind:
            names = ("object", "array", "string", "number", "boolean", "null")
            return f"({' | '.join(self.anything(name) for name in names)})"
        if kind == "string":
            return self._string({})
        if kind in ("object", "array"):
            self._add_recursive()
            return f"any_{kind}"
        return lark.json({"type": kind})

    def _string(self, schema: Mapping[str, Any]) -> str:
        terminal = raw_string(schema, self._end) or f"/(?s:.*){self._end}/"
        if self._end:
            return f"({self._quote} {self._lark.lazy('raw_', terminal)})"
        return f"({self._quote} {self._lark.shared('RAW_', terminal)} {self._quote})"

    def _add_recursive(self) -> None:
        lark = self._lark
        if "any_value" in lark:
            return
        lark.add("any_value", "any_object | any_array | any_scalar")
        key = "/[A-Za-z_][A-Za-z0-9_]*/"
        lark.add("any_object", f'"{{" ({key} ":" any_value ("," {key} ":" any_value)*)? "}}"')
        lark.add("any_array", '"[" (any_value ("," any_value)*)? "]"')
        scalars = " | ".join(self.anything(k) for k in ("string", "number", "boolean", "null"))
        lark.add("any_scalar", scalars)

    def _form(self, branch: Any, stem: str, depth: int) -> str:
        self._n_forms += 1
        if not isinstance(branch, Mapping) or self._n_forms > _MAX_FORMS:
            return self.anything()
        if (values := fixed_values(branch)) is not None:
            return " | ".join(self._exactly(value) for value in values)
        kind = branch.get("type", "object" if "properties" in branch else None)
        if kind == "string":
            return self._string(branch)
        if kind == "array" and isinstance(branch.get("items"), Mapping) and depth < 4:
            return self._array(branch, stem, depth)
        if kind == "object" and isinstance(branch.get("properties"), Mapping) and depth < 4:
            return self._object(branch, stem, depth)
        if kind in ("integer", "number"):
            return self._lark.json(branch)
        return self.anything(kind if isinstance(kind, str) else "")

    def _exactly(self, value: Any) -> str:
        if isinstance(value, str):
            return f"({self._quote} {self._lark.literal(value)} {self._quote})"
        return self._lark.literal(json.dumps(value))

    def _array(self, branch: Mapping[str, Any], stem: str, depth: int) -> str:
        item = self.value(_within(branch, branch["items"]), stem, depth + 1)
        low, high = branch.get("minItems", 0), branch.get("maxItems")
        if high == 0:
            return '"[]"'
        most = "" if high is None else high - 1
        more = "" if most == 0 else f'("," {item}){{{max(low - 1, 0)},{most}}}'
        return f'("[" {item} {more} "]"{"" if low else " | " + chr(34) + "[]" + chr(34)})'

    def _object(self, branch: Mapping[str, Any], stem: str, depth: int) -> str:
        names = branch.get("required", ())
        required = [name for name in branch["properties"] if name in names]
        order = sorted(branch["properties"], key=lambda name: name not in required)
        items = {
            name: f"{self._lark.literal(name + ':')} "
            + self.value(_within(branch, branch["properties"][name]), f"{stem}_{i}", depth + 1)
            for i, name in enumerate(order)
        }
        return self._lark.members(stem, items, required, "{", ",", "}")


def _within(outer: Mapping[str, Any], inner: Any) -> Any:
    """A schema with the definitions of the one around it."""
    if not isinstance(inner, Mapping):
        return inner
    return {**{k: v for k, v in outer.items() if k in ("$defs", "definitions")}, **inner}
