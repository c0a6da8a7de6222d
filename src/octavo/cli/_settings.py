"""Flags from elsewhere: the settings file and the environment, with one precedence for all.

A flag on the command line wins over OCTAVO_COMMAND_FLAG in the environment, that over the table
of the command in the settings file, and that over the default. Names are those of the flags:
`--max-queue` of `octavo serve` is OCTAVO_SERVE_MAX_QUEUE, and `max-queue` under `[serve]`.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from octavo.errors import SettingError
from octavo.settings import settings_path, tables


def attach(command: Any, name: str) -> dict[str, Any]:
    """Let the options of a command be set by the environment.

    -> values from the settings file, by the names of parameters.

    Raises:
        SettingError: the file has a key that is no flag of the command.
    """
    options = {flag(p): p for p in command.params if p.param_type_name == "option"}
    for option, parameter in options.items():
        parameter.envvar = variable(name, option)
    path = settings_path()
    given = tables(path).get(name, {})
    for key in given:
        if key not in options:
            raise SettingError(_unknown(path, name, key), _hint(key, list(options)))
    return {options[key].name: value for key, value in given.items()}


def flag(parameter: Any) -> str:
    """The name of an option: its longest flag without dashes."""
    return str(max(parameter.opts, key=len)).lstrip("-")


def variable(command: str, option: str) -> str:
    """The environment variable that sets an option."""
    return f"OCTAVO_{command}_{option}".upper().replace("-", "_")


def _unknown(path: Path, name: str, key: str) -> str:
    return f"{path}: [{name}] has the key {key!r}, which is no flag of octavo {name}"


def _hint(key: str, options: list[str]) -> str:
    close = difflib.get_close_matches(key, options, n=1)
    return f"Did you mean {close[0]}?" if close else f"There are {', '.join(options)}."
