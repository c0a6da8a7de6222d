"""Models that are on this machine already, by whatever name they are called. No network here."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from octavo import registry
from octavo.errors import NotFoundError
from octavo.gguf.shards import shard_name, shard_place
from octavo.hub.aliases import aliases
from octavo.hub.remote import RemoteFile, safe_path
from octavo.settings import Settings

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PULLED = "pulled.json"


def find_local(name: str, settings: Settings) -> Path:
    """As `octavo.hub.resolve.resolve`, but only what is on this machine.

    Raises:
        NotFoundError: it is not; the hint says how to fetch it.
    """
    kept = find_kept(name, settings)
    if kept is None:
        raise NotFoundError(f"{name} is not on this machine yet", f"Fetch it: octavo pull {name}")
    return kept


def find_kept(name: str, settings: Settings) -> Path | None:
    """The model if it is here, None if it could be fetched.

    Raises:
        NotFoundError: nothing has this name.
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    scheme, _, rest = name.partition(":")
    if is_address(name):
        files = files_at(name, settings)
        places = [folder_of_addresses(name, settings) / file.path for file in files]
        return places[0] if all(place.is_file() for place in places) else None
    if is_repository(name):
        repo, pattern = split_reference(scheme, rest)
        return recall(settings.models_dir / scheme / repo, pattern)
    if name in aliases():
        return _kept_alias(name, settings)
    kept = settings.models_dir / name
    if not path.is_absolute() and ".." not in path.parts and kept.exists():
        return kept
    raise _unknown(name, path)


def _kept_alias(name: str, settings: Settings) -> Path | None:
    alias = aliases()[name]
    if not alias.file:
        found = (find_kept(source, settings) for source in alias.sources)
        return next((path for path in found if path), None)
    place = settings.models_dir / alias.file
    return place if place.is_file() and place.stat().st_size == alias.n_bytes else None


def _unknown(name: str, path: Path) -> NotFoundError:
    if path.suffix.lower() == ".gguf" or len(path.parts) > 1 or name.startswith((".", "~")):
        hint = "Check the path, or fetch a model: octavo pull demo"
        if _REPO.fullmatch(name):
            hint = f"If this is a repository, write hf:{name} (Hugging Face) or ms:{name}."
        return NotFoundError(f"There is no file {path}", hint)
    close = difflib.get_close_matches(name, aliases(), n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    return NotFoundError(
        f"There is no file and no model called {name!r}",
        f"{meant}Short names are: {', '.join(aliases())}. Others: hf:OWNER/REPO:FILE",
    )


# Addresses


def is_address(name: str) -> bool:
    return name.partition(":")[0] in ("http", "https")


def folder_of_addresses(url: str, settings: Settings) -> Path:
    return settings.models_dir / "url" / (urlsplit(url).hostname or "").replace(":", "_")


def files_at(url: str, settings: Settings) -> list[RemoteFile]:
    """The file at an address, or all shards of its set.

    Raises:
        NotFoundError: the address does not end with the name of a GGUF file.
        DownloadError: the name cannot be stored safely.
    """
    parts = urlsplit(url)
    # The page about a file and the file differ in one word of the address.
    page = parts.hostname == urlsplit(settings.hf_endpoint).hostname
    path = parts.path.replace("/blob/", "/resolve/", 1) if page else parts.path
    root, _, last = path.rpartition("/")
    place = shard_place(Path(unquote(last)))
    names = [unquote(last)]
    if place:
        names = [shard_name(place[0], i + 1, place[2]) for i in range(place[2])]
    if not names[0].lower().endswith(".gguf"):
        raise NotFoundError(
            f"{url} does not name a GGUF file", "The address must end with the name of the file."
        )
    return [
        RemoteFile(
            path=safe_path(f"{unquote(root).strip('/')}/{each}".lstrip("/")),
            url=parts._replace(path=f"{root}/{quote(each)}").geturl(),
        )
        for each in names
    ]


# Repositories


def is_repository(name: str) -> bool:
    scheme, colon, _ = name.partition(":")
    return bool(colon) and scheme in registry.names("hub.sources")


def split_reference(scheme: str, reference: str) -> tuple[str, str]:
    """(owner/repo, pattern) of what follows the scheme.

    Raises:
        NotFoundError: it is not of that form.
    """
    repo, _, pattern = reference.partition(":")
    if not _REPO.fullmatch(repo):
        raise NotFoundError(
            f"{reference!r} is not a repository", f"Write {scheme}:OWNER/REPO:FILE."
        )
    return repo, pattern


def recall(folder: Path, pattern: str) -> Path | None:
    """The model that this pattern meant last time, if all its files are still here."""
    try:
        paths = json.loads((folder / _PULLED).read_text("utf-8"))[pattern]
        kept = [folder / safe_path(path) for path in paths]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept[0] if kept and all(path.is_file() for path in kept) else None


def remember(folder: Path, pattern: str, files: Sequence[RemoteFile]) -> None:
    """Keep for `recall` which files a pattern meant."""
    record = folder / _PULLED
    try:
        known = json.loads(record.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    known[pattern] = [file.path for file in files]
    part = record.with_suffix(".json.part")
    part.write_text(json.dumps(known, indent=1), "utf-8")
    part.replace(record)
