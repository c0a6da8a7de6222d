"""Which files make one model: a single file, or a set named NAME-00001-of-00003.gguf."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.errors import FileFormatError, NotFoundError

_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)

# Files beside a language model that are not one: a vision tower, a draft head.
_COMPANIONS = ("mmproj", "mtp-")


def shard_place(path: Path) -> tuple[str, int, int] | None:
    """(stem, number from 1, count) if the name is that of a shard."""
    found = _SHARD_NAME.fullmatch(path.name)
    if found is None:
        return None
    number, count = int(found["number"]), int(found["count"])
    return (found["stem"], number, count) if 1 <= number <= count else None


def is_companion(name: str) -> bool:
    """Whether the file is only part of a model: a vision tower or a draft head."""
    return name.lower().startswith(_COMPANIONS)


def shard_name(stem: str, number: int, count: int) -> str:
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def shard_paths(path: Path, count: int) -> list[Path]:
    """All files of the set that `path` belongs to, in order; `count` is what the file says.

    Raises:
        FileFormatError: the name does not show the place in the set, or a shard is missing.
    """
    place = shard_place(path)
    if place is None or place[2] != count:
        raise FileFormatError(
            f"{path.name} is one of {count} parts of a model, but its name does not say which",
            f"Give all parts their names back: {shard_name('NAME', 1, count)} and so on.",
        )
    paths = [path.with_name(shard_name(place[0], i + 1, count)) for i in range(count)]
    missing = [p for p in paths if not p.is_file()]
    if missing:
        shown = ", ".join(p.name for p in missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise FileFormatError(
            f"{len(missing)} of {count} parts of this model are missing in {path.parent}: {shown}",
            "Fetch the whole set: octavo pull hf:OWNER/REPO:PATTERN",
        )
    return paths


def model_in_folder(folder: Path) -> Path:
    """The one model in a folder: its only GGUF file, or a shard of its only set.

    Raises:
        NotFoundError: no GGUF file, or several models.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() == ".gguf" and p.is_file())
    models: dict[str, Path] = {}
    for file in files:
        if not is_companion(file.name):
            place = shard_place(file)
            models.setdefault(f"{place[0]} of {place[2]}" if place else file.name, file)
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        shown = ", ".join(p.name for p in list(models.values())[:8])
        raise NotFoundError(f"{folder} holds {len(models)} models: {shown}", "Name one of them.")
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.safetensors.index.json")):
        raise NotFoundError(
            f"{folder} holds a model as safetensors, not as GGUF",
            "Octavo reads GGUF files. Look for a GGUF version: octavo pull hf:OWNER/REPO:FILE",
        )
    raise NotFoundError(
        f"{folder} holds no GGUF file",
        "Name a folder with a .gguf file, or fetch a model: octavo pull demo",
    )
