"""Looking into a model on a hub without fetching it: only the first bytes of each file are read."""

from __future__ import annotations

import http.client
from pathlib import Path

from octavo.errors import DownloadError, FileFormatError, OctavoError, UnsupportedError
from octavo.gguf.header import Header, read_header
from octavo.gguf.reader import GGUFFile
from octavo.gguf.sniff import SNIFF_BYTES, check_start
from octavo.hub.aliases import aliases
from octavo.hub.client import Client, HttpError
from octavo.hub.fetch import list_model
from octavo.hub.local import files_at, is_address
from octavo.hub.remote import RemoteFile
from octavo.settings import Settings

# A header with a vocabulary takes 2 to 20 MB; that of a later shard a few kB.
_FIRST_BYTES = 2 << 20
_GROWTH = 4
_MOST_BYTES = 128 << 20


def open_remote(name: str, settings: Settings, client: Client | None = None) -> GGUFFile:
    """The metadata and tensor table of a model that is not here; its `data` cannot be read.

    Raises:
        NotFoundError, DownloadError: as `octavo.hub.resolve.resolve`.
        FileFormatError, UnsupportedError: as `octavo.gguf.reader.open_gguf`.
    """
    if settings.offline:
        raise DownloadError(
            f"{name} is not on this machine, and OCTAVO_OFFLINE forbids to look at it elsewhere"
        )
    web = client or Client()
    files = _files(name, settings, web)
    headers = [_header(file, shard, web) for shard, file in enumerate(files)]
    return GGUFFile([Path(file.path) for file in files], [], headers)


def _files(name: str, settings: Settings, client: Client) -> list[RemoteFile]:
    if is_address(name):
        return files_at(name, settings)
    if name not in aliases():
        return list_model(name, settings, client)
    reasons = []
    for source in aliases()[name].sources:
        try:
            return list_model(source, settings, client)
        except OctavoError as error:
            reasons.append(f"  {source}: {error.message}")
    raise DownloadError(
        f"No hub could show {name!r}:\n" + "\n".join(reasons),
        f"Fetching it may find another source: octavo pull {name}",
    )


def _header(file: RemoteFile, shard: int, client: Client) -> Header:
    wanted = _FIRST_BYTES
    while True:
        data, total = _start_of(file, wanted, client)
        check_start(data[:SNIFF_BYTES], total, file.path)
        try:
            return read_header(data, total, file.path, shard)
        except UnsupportedError:
            raise
        except FileFormatError:
            # Too little of it, or really damaged: more bytes tell.
            if len(data) >= min(total, _MOST_BYTES):
                raise
        wanted *= _GROWTH


def _start_of(file: RemoteFile, n_bytes: int, client: Client) -> tuple[bytes, int]:
    """The first bytes of a file and its size. A source that ignores the range is cut off."""
    wanted = {"Range": f"bytes=0-{n_bytes - 1}", **file.headers}
    with client.get(file.url, wanted) as answer:
        sizes = (answer.headers.get("Content-Range", "").rpartition("/")[2],
                 answer.headers.get("Content-Length", ""))  # fmt: skip
        try:
            data = answer.read(n_bytes)
        except (OSError, http.client.HTTPException) as error:
            raise HttpError(f"The source stopped sending {file.path}: {error}") from error
    known = [int(size) for size in sizes if size.isdecimal()]
    return data, file.n_bytes or max([len(data), *known[:1]])
