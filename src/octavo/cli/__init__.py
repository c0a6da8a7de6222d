"""The command line: one command a file, found by its name, imported when it runs.

A command module has a docstring (its help; the first line is shown in the list) and a function
`main` with typer annotations. This file finds commands, gives errors their words and exit codes,
and knows nothing about any command.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from octavo import registry
from octavo.cli._expand import expand
from octavo.cli._settings import attach
from octavo.errors import OctavoError
from octavo.settings import calm_blas

INTERRUPTED = 130  # 128 + SIGINT, what shells report
BROKEN_PIPE = 141  # 128 + SIGPIPE


class CommandGroup(TyperGroup):
    """The modules of this package as commands. Listing them imports none."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(registry.names("cli"))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        if cmd_name not in registry.names("cli"):
            return None
        module = registry.find("cli", cmd_name, "command")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name=cmd_name, help=module.__doc__)(expand(module.main))
        command = typer.main.get_command(app)
        ctx.default_map = {cmd_name: attach(command, cmd_name)}
        return command

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_line(name)) for name in self.list_commands(ctx)])

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OctavoError as error:
            _report(error)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader is gone; nothing may be flushed to it at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(BROKEN_PIPE) from None
        return result


app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"octavo {version('octavo')}")
        raise typer.Exit


@app.callback()
def octavo(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Run large open language models from GGUF files on this computer."""


def main() -> None:
    """The command that `sys.argv` names.

    Raises:
        SystemExit: at the end, with the code of the process.
    """
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        # Windows consoles and pipes default to a code page that cannot hold every character.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    calm_blas()
    app(prog_name="octavo")


def _first_line(command: str) -> str:
    """First line of the docstring, read without importing the module."""
    source = Path(__file__).with_name(f"{command}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _report(error: OctavoError) -> NoReturn:
    typer.secho(f"octavo: {error.message}", fg=typer.colors.RED, err=True)
    if error.hint:
        typer.echo(error.hint, err=True)
    raise SystemExit(error.exit_code) from None
