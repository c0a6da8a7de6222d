"""Jinja for templates that nobody has checked: no way out of it, bounded in size and time.

Jinja's immutable sandbox closes the ways to Python's internals. This adds a check to every loop
step, call, filter and growing operator; what happens between two checks is small, because every
value is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn, cast

from jinja2 import Template, nodes, pass_environment
from jinja2.environment import Environment
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from octavo.text import bounds

# fmt: off
_FILTERS = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min",
    "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort", "string",
    "title", "trim", "unique", "upper",
)
# fmt: on
_GLOBALS = ("range", "dict", "namespace", "joiner", "cycler")
# Methods that can make much out of little and that no chat template needs.
_CLOSED = ("translate", "encode", "to_bytes", "fromkeys")


class RefusedError(Exception):
    """A template called `raise_exception`."""


def compile_template(source: str) -> Template:
    """Compile a chat template.

    Raises:
        jinja2.TemplateSyntaxError: it is not Jinja, or uses what is not offered here.
    """
    return _Environment().from_string(source)


def run_template(template: Template, values: Mapping[str, Any], max_chars: int) -> str:
    """The template's text; neither it nor any value on the way is longer than `max_chars`.

    Raises:
        RefusedError, bounds.BoundError, or whatever else the template makes Python raise.
    """
    with bounds.bounded(max_chars):
        return bounds.join(template.generate(**values))


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        # Not optimised: nothing is computed while compiling, outside of the bounds.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            optimized=False,
        )
        offered = {name: self.filters[name] for name in _FILTERS}
        offered |= {"replace": _replace, "join": _join, "indent": _indent, "format": _format}
        offered |= {"tojson": _to_json, "_steps": _steps, "_joined": bounds.join}
        self.filters = {name: _bounded(function) for name, function in offered.items()}
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
        self.concat = bounds.join  # type: ignore[method-assign]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Marker().visit(tree)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _CLOSED and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        bounds.check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        bounds.check_time()
        bounds.check_method(__obj, args)
        return bounds.checked(super().call(__context, __obj, *args, **kwargs))


class _Marker(NodeTransformer):
    """Sends loops and `~` through filters, where they can be bounded."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _through("_steps", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _through("_joined", nodes.List(node.nodes, lineno=node.lineno))


def _through(name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # keeps Jinja's mark of what is to be passed first
    def run(*args: Any, **kwargs: Any) -> Any:
        bounds.check_time()
        return bounds.checked(function(*args, **kwargs))

    return run


def _steps(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        bounds.check_time()
        yield item


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    text = str(value)
    bounds.check_replace(text, str(old), str(new))
    return text.replace(str(old), str(new), count)


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: str | None = None
) -> str:
    items = list(value)
    if attribute is not None:
        items = [environment.getitem(item, attribute) for item in items]
    texts = [str(item) for item in items]
    bounds.check_length(sum(map(len, texts)) + len(str(d)) * len(texts))
    return str(d).join(texts)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if isinstance(width, int):
        bounds.check_width(width)
    margin = " " * width if isinstance(width, int) else width
    lines = str(value).split("\n")
    bounds.check_length(len(str(value)) + len(lines) * len(margin))
    return "\n".join(
        margin + line if (line or blank) and (number or first) else line
        for number, line in enumerate(lines)
    )


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    bounds.check_format(str(value))
    return str(value) % (kwargs or args)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML."""
    bounds.check_width(indent or 0)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise RefusedError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern[:100])
