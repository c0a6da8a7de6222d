"""Flags, environment and settings file: one precedence, for every flag of every command."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import octavo.cli
from octavo.cli._settings import flag, variable
from test_docs import command_names

# Two values of each kind of flag: as on the command line.
SAMPLES = {
    "text": ("one", "two"),
    "int": ("7", "8"),
    "float": ("0.25", "0.5"),
    "size": ("7MB", "8MB"),
    "folder": (str(Path(__file__).parent), str(Path(__file__).parents[1])),
    "file": (__file__, str(Path(__file__).with_name("conftest.py"))),
}


@cache
def root() -> Any:
    return typer.main.get_command(octavo.cli.app)


@cache
def options(command: str) -> dict[str, Any]:
    """The options of a command by their names."""
    found = root().get_command(typer.Context(root()), command)
    return {flag(p): p for p in found.params if p.param_type_name == "option"}


def read(command: str, *arguments: str) -> dict[str, Any]:
    """What the command would get for each option."""
    context = typer.Context(root(), info_name="octavo")
    found = root().get_command(context, command)
    given = found.make_context(command, list(arguments), parent=context).params
    return {name: given[p.name] for name, p in options(command).items()}


@cache
def samples(command: str, option: str) -> tuple[str, tuple[str, str]]:
    """The kind of the option and two values of it: of `SAMPLES` by trying, or two of its words."""
    parameter = options(command)[option]
    context = typer.Context(root())
    if names := [getattr(c, "value", c) for c in getattr(parameter.type, "choices", ())]:
        return "choice", (names[0], names[-1])
    for kind, values in SAMPLES.items():
        try:
            for value in values:
                parameter.process_value(context, [value] if parameter.multiple else value)
        except Exception:
            continue
        return kind, values
    raise AssertionError(f"nothing fits {command} --{option}")


def flags(command: str, choice: int) -> list[str]:
    """Every option of the command, with its first or second value."""
    found: list[str] = []
    for name, parameter in options(command).items():
        if not parameter.is_flag:
            found += [f"--{name}", samples(command, name)[1][choice]]
        elif choice == 0:
            found.append(f"--{name}")
        else:
            found += parameter.secondary_opts[:1]
    return found


def settings_text(command: str) -> str:
    """The first values as a settings file."""
    lines = [f"[{command}]"]
    for name, parameter in options(command).items():
        kind, (value, _) = ("bool", ("true", "")) if parameter.is_flag else samples(command, name)
        value = value if kind in ("bool", "int", "float") else f"'{value}'"
        lines.append(f"{name} = {f'[{value}]' if parameter.multiple else value}")
    return "\n".join(lines)


@pytest.mark.parametrize("command", command_names())
def test_every_flag_has_one_precedence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    monkeypatch.setenv("OCTAVO_SETTINGS", str(file))
    found = root().get_command(typer.Context(root()), command)
    needed = [p for p in found.params if p.param_type_name == "argument" and p.required]
    rest = [next(iter(getattr(p.type, "choices", ())), "x") for p in needed]
    first, second = (read(command, *flags(command, choice), *rest) for choice in (0, 1))
    assert all(first[name] != second[name] for name in first)
    file.write_text(settings_text(command), encoding="utf-8")
    assert read(command, *rest) == first  # the file says the same as the flags
    for name, parameter in options(command).items():
        text = "false" if parameter.is_flag else samples(command, name)[1][1]
        monkeypatch.setenv(variable(command, name), text)
    assert read(command, *rest) == second  # the environment wins over the file
    assert read(command, *flags(command, 0), *rest) == first  # flags win over both


def test_names() -> None:
    assert variable("serve", "max-queue") == "OCTAVO_SERVE_MAX_QUEUE"
    assert "ctx-size" in options("serve")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[serve]\nmax-queu = 3\n", ("max-queu", "Did you mean max-queue?")),
        ("host = 'x'\n", ("'host' stands outside",)),
        ("[serve\n", ("cannot be read",)),
    ],
)
def test_wrong_files_are_told(
    text: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    monkeypatch.setenv("OCTAVO_SETTINGS", str(file))
    done = CliRunner().invoke(octavo.cli.app, ["serve", "absent.gguf"])
    assert done.exit_code == 2
    assert all(word in done.output for word in (*words, file.name))


def test_a_value_out_of_range_is_told_wherever_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCTAVO_SERVE_PORT", "99999999")
    done = CliRunner().invoke(octavo.cli.app, ["serve", "absent.gguf"])
    assert done.exit_code == 2
    assert "65535" in done.output
