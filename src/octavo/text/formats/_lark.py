"""A grammar under construction, in the Lark dialect of llguidance.

Calls may give their arguments in any order, each once, all required ones: rules with a number
behind `::` do that. Its bits say which arguments are there; `Tool.properties` has the required
ones first, so they are the lowest bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from octavo.text.formats._declared import Tool

MAX_BITS = 64  # further arguments are optional to the grammar, and may be repeated
# JSON as templates show it to the model.
JSON_STYLE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,  # keywords it cannot express do not hold
}
# Numbers without limits of their own. Weak models write digits without end where nothing stops
# them; 80 hold a whole number of 256 bits.
_WHOLE = r"-?(0|[1-9][0-9]{0,79})"
_NUMBERS = {
    "integer": f"/{_WHOLE}/",
    "number": rf"/{_WHOLE}(\.[0-9]{{1,32}})?([eE][+-]?[0-9]{{1,3}})?/",
}
_REMARKS = frozenset({"title", "description", "default", "examples", "$defs", "definitions"})


class Lark:
    """Rules so far. `controls`: text of a control token -> its id; such a text is one token."""

    def __init__(self, controls: Mapping[str, int]) -> None:
        self._controls = controls
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}

    @property
    def text(self) -> str:
        """All rules."""
        return "\n".join(f"{name}: {body}" for name, body in self._rules.items()) + "\n"

    def __contains__(self, name: str) -> bool:
        return name in self._rules

    def add(self, name: str, body: str) -> str:
        """Add a rule under this name and return the name."""
        assert name not in self._rules, f"rule {name} is there already"
        self._rules[name] = body
        return name

    def shared(self, prefix: str, body: str, option: str = "") -> str:
        """The name of a rule with this body; the same body is written once."""
        key = f"{prefix}|{option}|{body}"
        if key not in self._names:
            name = f"{prefix}{len(self._names)}"
            self._names[key] = name
            self.add(f"{name}{option}", body)
        return self._names[key]

    def is_control(self, text: str) -> bool:
        return text in self._controls

    def lazy(self, prefix: str, terminal: str) -> str:
        """The name of a rule that ends where the terminal first matches."""
        return self.shared(prefix, self.shared(prefix.upper(), terminal), "[lazy]")

    def literal(self, text: str) -> str:
        """Exactly this text, spelled."""
        return json.dumps(text, ensure_ascii=False)

    def tag(self, text: str) -> str:
        """A text of the dialect: what is a control token in it is that token."""
        known = "|".join(map(re.escape, sorted(self._controls, key=len, reverse=True)))
        parts = re.split(f"({known})", text) if known else [text]
        return " ".join(
            f"<[{self._controls[part]}]>" if part in self._controls else self.literal(part)
            for part in parts
            if part
        )

    def json(self, schema: Any) -> str:
        """JSON that matches a schema."""
        if isinstance(schema, Mapping):
            kind = schema.get("type")
            if isinstance(kind, str) and kind in _NUMBERS and schema.keys() <= {"type", *_REMARKS}:
                return self.shared("number_", self.shared("NUMBER_", _NUMBERS[kind]))
            schema = {**schema, "x-guidance": JSON_STYLE}
        elif schema is True:
            schema = {"x-guidance": JSON_STYLE}
        return self.shared("json_", f"%json {json.dumps(schema)}")

    def object(self, tool: Tool, stem: str) -> str:
        """A call's arguments as a JSON object."""
        if tool.is_open:
            return self.json({**tool.parameters, "type": "object"})
        items = {
            name: f"{self.literal(json.dumps(name, ensure_ascii=False) + ': ')} {self.json(schema)}"
            for name, schema in tool.properties.items()
        }
        return self.members(stem, items, tool.required, "{", ", ", "}")

    def members(
        self,
        stem: str,
        items: Mapping[str, str],
        required: Collection[str],
        opening: str,
        separator: str,
        closing: str,
    ) -> str:
        """Items in any order between signs; those `required` come first in `items`."""
        end = self.literal(closing)
        if not items:
            return self.add(stem, f"{self.literal(opening)} {end}")
        n, n_required = len(items), len(required)
        self.add(f"{stem}_first::_", _join([end if not required else "", f"{stem}_one::_"]))
        more = f"{self.literal(separator)} {stem}_one::_{some_left(n)}"
        self.add(f"{stem}_rest::_", _join([f"{end}{all_there(n_required)}", more]))
        choices = each_once(items, lambda body, bits: f"{body} {stem}_rest::{bits}")
        self.add(f"{stem}_one::_", _join(choices))
        return self.add(stem, f"{self.literal(opening)} {stem}_first::0x0")


def each_once(items: Mapping[str, str], choice: Callable[[str, str], str]) -> list[str]:
    """`choice(item, the bits after it)` for each item that was not there yet."""
    return [
        f"{choice(body, f'set_bit({bit})')} %if bit_clear({bit})"
        if bit < MAX_BITS
        else choice(body, "_")
        for bit, body in enumerate(items.values())
    ]


def all_there(n_required: int) -> str:
    """The condition that all required arguments are there."""
    return f" %if is_ones([0:{min(n_required, MAX_BITS)}])" if n_required else ""


def some_left(n: int) -> str:
    """The condition that an argument is not there yet."""
    return f" %if not(is_ones([0:{n}]))" if n <= MAX_BITS else ""


def _join(choices: list[str]) -> str:
    return "\n  | ".join(choice for choice in choices if choice)


def further(lark: Lark, call: str) -> str:
    """What may follow a call that ends with a tag: more of them, each on a line of its own.

    Line breaks at the end must not be the beginning of a further call: many a model makes some
    before it says something else, or nothing.
    """
    breaks = lark.shared("BREAKS_", r"/\n{1,3}/")
    return f" ({breaks} {call})* {breaks}?"


def json_call(lark: Lark, tools: Iterable[Tool], key: str) -> str:
    """The body of a rule for `{"name": NAME, key: ARGUMENTS}`."""
    choices = []
    for i, tool in enumerate(tools):
        name = json.dumps(tool.name, ensure_ascii=False)[1:]  # its opening quote is before
        arguments = lark.object(tool, f"args_{i}")
        choices.append(f"{lark.literal(f'{name}, {json.dumps(key)}: ')} {arguments}")
    return f'"{{\\"name\\": \\"" ({" | ".join(choices)}) "}}"'
