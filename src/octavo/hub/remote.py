"""What a hub says it holds, and which of its files make the model that was asked for."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath

from octavo.errors import DownloadError, NotFoundError
from octavo.gguf.shards import is_companion, shard_place
from octavo.record import dataclass

_MAX_LISTED = 24


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be fetched. `n_bytes` and `sha256` are None where the source does not say.

    `path` is relative, with forward slashes; `headers` (a token) go to the host of `url` only.
    """

    path: str
    url: str
    n_bytes: int | None = None
    sha256: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def safe_path(path: str) -> str:
    """`path` if it stays below the folder it is joined to, on every system.

    Raises:
        DownloadError: absolute, with "..", a drive, a backslash or a control character.
    """
    parts = PurePosixPath(path).parts
    bad = any(c in '\\:*?"<>|' or ord(c) < 32 for c in path)
    if not parts or bad or path.startswith("/") or ".." in parts:
        raise DownloadError(f"The source names a file {path!r} that cannot be stored safely")
    return "/".join(parts)


def select_model(paths: Sequence[str], pattern: str, where: str) -> list[str]:
    """The paths of the one model that `pattern` means: one file, or all shards of a set.

    A pattern is a part of the name ("Q4_K_M", any case), a glob, or the whole name. Without one,
    the place must hold one model only.

    Raises:
        NotFoundError: none or several; the message lists the choices.
    """
    models: dict[str, list[str]] = {}
    for path in sorted(paths):
        if path.lower().endswith(".gguf"):
            models.setdefault(_model_name(path), []).append(path)
    chosen = [name for name in models if _matches(name, models[name], pattern)]
    exact = [name for name in chosen if pattern in (name, models[name][0], Path(name).name)]
    main = exact or [name for name in chosen if not is_companion(Path(name).name)]
    if len(main) > 1:
        main = _tightest(main, pattern) or main
    if len(main) != 1:
        raise _no_choice(models, main, pattern, where)
    _check_complete(models[main[0]], where)
    return models[main[0]]


def _model_name(path: str) -> str:
    place = shard_place(Path(path))
    return f"{path[: -len(Path(path).name)]}{place[0]}.gguf" if place else path


def _matches(name: str, paths: list[str], pattern: str) -> bool:
    if any(c in pattern for c in "*?["):
        lower = pattern.lower()
        names = [name, *paths, *(Path(path).name for path in paths)]
        return any(fnmatch.fnmatchcase(each.lower(), lower) for each in names)
    return pattern.lower() in name.lower() or pattern in paths


def _tightest(names: list[str], pattern: str) -> list[str]:
    """Of several matches those where the pattern is a whole word: "Q4_K_M" is not "UD-Q4_K_M"."""
    word = pattern.lower()
    ends = [n for n in names if n.lower().removesuffix(".gguf").endswith((f"-{word}", f".{word}"))]
    prefixed = [n for n in ends if n.lower().removesuffix(".gguf").endswith(f"-ud-{word}")]
    return [n for n in ends if n not in prefixed]


def _no_choice(
    models: dict[str, list[str]], chosen: list[str], pattern: str, where: str
) -> NotFoundError:
    shown = ", ".join((chosen or list(models))[:_MAX_LISTED])
    if not models:
        return NotFoundError(
            f"{where} holds no GGUF file",
            "Look for a repository whose name ends in -GGUF.",
        )
    if chosen:
        return NotFoundError(
            f"{where} holds {len(chosen)} models that fit {pattern!r}"
            if pattern
            else f"{where} holds {len(chosen)} models",
            f"Add which one, as in {where}:Q4_K_M. There are: {shown}",
        )
    return NotFoundError(f"{where} has no model {pattern!r}", f"There are: {shown}")


def _check_complete(paths: list[str], where: str) -> None:
    place = shard_place(Path(paths[0]))
    if place and len(paths) != place[2]:
        raise NotFoundError(
            f"{where} holds {len(paths)} of the {place[2]} parts of {place[0]}",
            "The upload is incomplete; choose another model.",
        )
