"""Short names for models, from aliases.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from octavo.record import dataclass


@dataclass(frozen=True)
class Piece:
    """A file inside a wheel: a pip requirement with an exact version, and the path within."""

    requirement: str
    member: str


@dataclass(frozen=True)
class Alias:
    """A model by its short name. `file` is "" where the sources decide the names of the files."""

    name: str
    title: str
    license: str
    file: str
    n_bytes: int
    sha256: str
    sources: tuple[str, ...]
    packages: tuple[Piece, ...]


@cache
def aliases() -> dict[str, Alias]:
    """All aliases by name."""
    table = tomllib.loads(files("octavo.hub").joinpath("aliases.toml").read_text("utf-8"))
    return {
        name: Alias(
            name=name,
            title=row["title"],
            license=row["license"],
            file=row.get("file", ""),
            n_bytes=row.get("bytes", 0),
            sha256=row.get("sha256", ""),
            sources=tuple(row["sources"]),
            packages=tuple(Piece(**piece) for piece in row.get("packages", [])),
        )
        for name, row in table.items()
    }
