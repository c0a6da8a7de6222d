"""ModelScope, which is reachable where Hugging Face is not."""

from __future__ import annotations

from urllib.parse import quote

from octavo.errors import DownloadError, NotFoundError
from octavo.hub.client import Client, HttpError
from octavo.hub.remote import RemoteFile
from octavo.settings import Settings

LABEL = "ModelScope"


def list_files(repo: str, client: Client, settings: Settings) -> list[RemoteFile]:
    """All files of the newest revision, with sizes and SHA-256.

    Raises:
        NotFoundError: no such repository.
        DownloadError: not reachable, or an answer of another form.
    """
    root = settings.ms_endpoint.rstrip("/")
    url = f"{root}/api/v1/models/{quote(repo)}/repo/files?Revision=master&Recursive=true"
    try:
        found, _ = client.get_json(url)
        rows = found["Data"]["Files"]
        files = [row for row in rows if row["Type"] == "blob"]
        return [_remote(row, f"{root}/models/{quote(repo)}/resolve/master/") for row in files]
    except HttpError as error:
        if error.http_status == 404:
            raise NotFoundError(
                f"ModelScope has no repository {repo!r}", "Check the spelling."
            ) from None
        raise
    except (KeyError, TypeError):
        raise DownloadError("ModelScope answered in a form that is not understood") from None


def _remote(row: dict[str, object], root: str) -> RemoteFile:
    path, size, digest = str(row["Path"]), row.get("Size"), row.get("Sha256")
    return RemoteFile(
        path=path,
        url=root + quote(path),
        n_bytes=size if isinstance(size, int) else None,
        sha256=str(digest) if digest else None,
    )
