"""Show a text as the model's tokens.

One line a token: its id and its text. Without TEXT, standard input is read.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json, Model

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer


def main(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="Text; standard input if absent.")] = None,
    special: Annotated[
        bool,
        typer.Option("--special", help="Read names of control tokens as such; add BOS and EOS."),
    ] = False,
    ids_only: Annotated[bool, typer.Option("--ids-only", help="Print a list of ids.")] = False,
    json_output: Json = False,
) -> None:
    """The command."""
    from octavo.gguf.reader import open_gguf
    from octavo.hub.local import find_local
    from octavo.settings import Settings
    from octavo.text.tokenizer import Tokenizer

    if text is None:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    with open_gguf(find_local(model, Settings.from_environment())) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        ids = tokenizer.encode(text, parse_special=special, add_special=special)
        if json_output:
            screen.emit({"count": len(ids), "ids": ids, "tokens": _shown(tokenizer, ids)})
        elif ids_only:
            typer.echo(" ".join(map(str, ids)))
        else:
            rows = zip(ids, _shown(tokenizer, ids), strict=True)
            typer.echo("\n".join(f"{token:>7}  '{_visible(piece)}'" for token, piece in rows))


def _shown(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The tokens' texts; what is no whole character shows as \\xNN."""
    return [tokenizer.piece(token).decode("utf-8", "backslashreplace") for token in ids]


def _visible(text: str) -> str:
    """`text` on one line: line ends and other unseen characters as Python writes them."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
