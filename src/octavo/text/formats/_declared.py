"""The functions that a request declares: names, arguments, and calls made of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from octavo.errors import RequestError
from octavo.record import dataclass
from octavo.text.formats._values import as_json, coerce, kinds, text_value
from octavo.types import ToolCall


@dataclass(frozen=True)
class Tool:
    """One function. `parameters` is the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]

    @cached_property
    def properties(self) -> dict[str, Any]:
        """Argument -> its schema, required ones first; definitions it refers to are inside."""
        declared = self.parameters.get("properties")
        if not isinstance(declared, Mapping):
            return {}
        order = sorted(declared, key=lambda name: name not in self.required)
        return {name: self._whole(declared[name]) for name in order}

    @cached_property
    def required(self) -> frozenset[str]:
        """Arguments that a call must have."""
        declared = self.parameters.get("properties")
        names = self.parameters.get("required")
        known = declared.keys() if isinstance(declared, Mapping) else frozenset()
        listed = names if isinstance(names, (list, tuple)) else ()  # of anything
        return frozenset(name for name in listed if isinstance(name, str)) & frozenset(known)

    @cached_property
    def is_open(self) -> bool:
        """Arguments of any name are welcome: no properties, and more than an empty object."""
        if self.properties:
            return False
        more = self.parameters.get("additionalProperties", False)
        other = self.parameters.keys() & {"anyOf", "oneOf", "allOf", "$ref", "patternProperties"}
        return bool(other) or (more is not False and more is not None)

    def _whole(self, schema: Any) -> Any:
        """A property's schema that can be understood without the rest."""
        if not isinstance(schema, Mapping):
            return schema
        shared = {k: v for k, v in self.parameters.items() if k in ("$defs", "definitions")}
        return {**schema, **{k: v for k, v in shared.items() if k not in schema}}


class Tools:
    """All functions of a request, by name.

    Raises:
        RequestError: a declaration has no name, or two have the same.
    """

    def __init__(self, declarations: Sequence[Mapping[str, Any]]) -> None:
        self._tools: dict[str, Tool] = {}
        self.add(*(_tool(declaration, at) for at, declaration in enumerate(declarations)))

    def add(self, *tools: Tool) -> None:
        """Add further tools.

        Raises:
            RequestError: there is one of that name.
        """
        for tool in tools:
            if tool.name in self._tools:
                raise RequestError(
                    f"The tool {tool.name!r} is declared twice", "Give each tool its own name."
                )
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def only(self, names: Iterable[str]) -> Tools:
        """These tools alone."""
        chosen = Tools(())
        chosen.add(*(self._tools[name] for name in names))
        return chosen

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """A call with its arguments brought to the declared types where that is possible."""
        return self._call(name, arguments, coerce)

    def call_of_texts(self, name: str, arguments: Mapping[str, str]) -> ToolCall:
        """A call whose arguments were written without quotes: all of them are texts."""
        return self._call(name, arguments, text_value)

    def _call(
        self, name: str, arguments: Mapping[str, Any], convert: Callable[[Any, Any], Any]
    ) -> ToolCall:
        tool = self.get(name)
        schemas = tool.properties if tool else {}
        given = {k: convert(v, schemas[k]) if k in schemas else v for k, v in arguments.items()}
        return ToolCall(name, as_json(given), new_id())

    def is_sound(self, call: ToolCall) -> bool:
        """Declared, nothing required missing, and every argument of a declared type."""
        tool = self.get(call.name)
        if tool is None:
            return False
        given = json.loads(call.arguments)
        if not tool.required <= given.keys():
            return False
        return all(_fits(value, tool.properties.get(name, {})) for name, value in given.items())


def new_id() -> str:
    """An id for a call."""
    return f"call_{secrets.token_hex(12)}"


def _fits(value: Any, schema: Any) -> bool:
    allowed = kinds(schema)
    return not allowed or any(kind in allowed for kind in kinds({"const": value}))


def _tool(declaration: Mapping[str, Any], at: int) -> Tool:
    function = declaration.get("function", declaration)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise RequestError(
            f"Tool {at} has no name",
            'A tool is {"type": "function", "function": {"name": ..., "parameters": ...}}.',
        )
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise RequestError(
            f"The parameters of tool {name!r} are no JSON schema", "Give an object schema."
        )
    try:
        json.dumps(parameters)
    except (TypeError, ValueError, RecursionError):
        raise RequestError(
            f"The parameters of tool {name!r} are no JSON", "Use plain values, not too deep."
        ) from None
    return Tool(name, parameters)
