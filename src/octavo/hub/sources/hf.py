"""Hugging Face, or a mirror with the same interface (HF_ENDPOINT)."""

from __future__ import annotations

from urllib.parse import quote

from octavo.errors import DownloadError, NotFoundError
from octavo.hub.client import Client, HttpError
from octavo.hub.remote import RemoteFile
from octavo.settings import Settings

LABEL = "Hugging Face"

_MAX_PAGES = 20


def list_files(repo: str, client: Client, settings: Settings) -> list[RemoteFile]:
    """All files of the newest revision, with sizes and, for large ones, SHA-256.

    Raises:
        NotFoundError: no such repository, or closed to this user.
        DownloadError: not reachable, or an answer of another form.
    """
    root = settings.hf_endpoint.rstrip("/")
    headers = {"Authorization": f"Bearer {settings.hf_token}"} if settings.hf_token else {}
    page = f"{root}/api/models/{quote(repo)}/tree/main?recursive=true"
    rows: list[dict[str, object]] = []
    for _ in range(_MAX_PAGES):
        found, page = _page(page, repo, client, headers)
        rows += found
        if not page:
            break
    return [_remote(row, f"{root}/{quote(repo)}/resolve/main/", headers) for row in rows]


def _page(
    url: str, repo: str, client: Client, headers: dict[str, str]
) -> tuple[list[dict[str, object]], str]:
    try:
        found, following = client.get_json(url, headers)
    except HttpError as error:
        if error.http_status in (401, 403, 404):
            raise NotFoundError(
                f"Hugging Face shows no repository {repo!r} to you",
                "Check the spelling. If it is private or gated, accept its terms there and set "
                "HF_TOKEN.",
            ) from None
        raise
    if not isinstance(found, list):
        raise DownloadError("Hugging Face answered in a form that is not understood")
    return [row for row in found if isinstance(row, dict) and row.get("type") == "file"], following


def _remote(row: dict[str, object], root: str, headers: dict[str, str]) -> RemoteFile:
    path, size, lfs = str(row.get("path")), row.get("size"), row.get("lfs")
    oid = lfs.get("oid") if isinstance(lfs, dict) else None
    return RemoteFile(
        path=path,
        url=root + quote(path),
        n_bytes=size if isinstance(size, int) else None,
        sha256=str(oid) if oid else None,
        headers=headers,
    )
