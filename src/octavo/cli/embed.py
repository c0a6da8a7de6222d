"""Turn texts into vectors.

The texts are the arguments, or the lines of standard input. Each gives one line: the numbers
with spaces between, or with --json an object with the text and its vector. Vectors have length 1.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json, LoadFlags, Model
from octavo.errors import RequestError

AT_ONCE = 16  # texts handed to the engine together


def main(
    model: Model,
    load: LoadFlags,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="The texts.")] = None,
    dimensions: Annotated[
        int | None,
        typer.Option("--dimensions", min=1, help="Keep the first ones; scaled to length 1 again."),
    ] = None,
    json_output: Json = False,
) -> None:
    """The command."""
    lines = texts or [line.rstrip("\r\n") for line in sys.stdin]
    if not lines:
        raise RequestError("There is no text", "Give texts as arguments or on standard input.")
    with (
        screen.loaded(model, load.wishes()) as session,
        screen.progress("embedding", unit="texts") as advance,
    ):
        vectors = []
        for start in range(0, len(lines), AT_ONCE):
            vectors += [*session.embed(lines[start : start + AT_ONCE], dimensions)]
            advance(len(vectors), len(lines))
    for line, vector in zip(lines, vectors, strict=True):
        numbers = [float(f"{x:.7g}") for x in vector]
        if json_output:
            screen.emit({"text": line, "embedding": numbers})
        else:
            screen.write(" ".join(f"{x:.7g}" for x in numbers) + "\n")
