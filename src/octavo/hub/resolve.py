"""From what the user calls a model to a file on disk, fetched if it must be.

a path, a folder     used as it is
a short name         from aliases.toml; the first source that delivers
hf:owner/repo:which  Hugging Face; ms: ModelScope; "which" is a part of a file name or a glob
https://...          one file; the address of any shard means the whole set
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import DownloadError
from octavo.hub.local import find_kept
from octavo.settings import Settings

if TYPE_CHECKING:
    from octavo.hub.client import Client
    from octavo.hub.download import Progress


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
    kept = find_kept(name, settings)
    if kept is not None:
        return kept
    if settings.offline:
        raise DownloadError(
            f"{name} is not on this machine, and OCTAVO_OFFLINE forbids to fetch it",
            "Unset OCTAVO_OFFLINE, or put the file there by hand.",
        )
    # Here, because most starts find the model on disk and need no network code.
    from octavo.hub.client import Client
    from octavo.hub.fetch import Fetch

    return Fetch(settings, progress or _ignore, client or Client()).model(name)


def _ignore(path: str, done_bytes: int, total_bytes: int | None) -> None:
    pass
