"""Groups of flags: a parameter that is a dataclass stands for one flag per field.

So flags that several commands share are written once, in `cli/_options.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def expand(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command` with every dataclass parameter replaced by its fields, which all have defaults."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if _is_group(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        parameters += _flat(group) if group else [_own(parameter, hints[parameter.name])]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        for name, group in groups.items():
            own = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**own)
        return command(**values)

    # Typer reads both; `wraps` would have left it those of the command.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _flat(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


def _own(parameter: inspect.Parameter, hint: Any) -> inspect.Parameter:
    return parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)
