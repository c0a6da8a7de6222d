"""Fetch a model and print where it is.

NAME is a short name (demo), hf:OWNER/REPO:FILE, ms:OWNER/REPO:FILE (ModelScope), or an address.
FILE may be a part of a name such as Q4_K_M. All parts of a split model are fetched, checked and
kept in the model folder; an interrupted download goes on where it stopped.
"""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json


def main(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The model to fetch.")],
    json_output: Json = False,
) -> None:
    """The command."""
    from octavo.hub.aliases import aliases
    from octavo.hub.resolve import resolve
    from octavo.settings import Settings

    alias = aliases().get(name)
    if alias:
        screen.note(f"{alias.title}. License: {alias.license}")
    with screen.progress(f"fetching {name}") as advance:
        path = resolve(name, Settings.from_environment(), screen.FileSum(advance))
    if json_output:
        screen.emit({"name": name, "path": str(path)})
    else:
        typer.echo(path)
