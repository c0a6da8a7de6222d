"""Fetching the files of one model: resumable, several at once, checked, all or nothing.

A file grows as NAME.part beside its place, with NAME.part.json saying which version of the remote
file it is. It gets its name only when every file of the model is whole and verified.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, BinaryIO

from octavo.errors import DownloadError, FileFormatError, UnsupportedError
from octavo.gguf.reader import check_file
from octavo.gguf.sniff import SNIFF_BYTES, check_start
from octavo.hub.client import Client, HttpError
from octavo.hub.lock import exclusive
from octavo.hub.remote import RemoteFile, safe_path

# (file, bytes so far, bytes in all or None). Called from several threads, about once a megabyte.
Progress = Callable[[str, int, int | None], None]

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 256 << 20  # left free on the disk for everybody else


def download(
    files: Sequence[RemoteFile],
    folder: Path,
    client: Client,
    progress: Progress | None = None,
) -> list[Path]:
    """Fetch `files` into `folder`; their places, in order. Files already there are kept.

    Raises:
        DownloadError: not enough room, a source failed for good, or sent wrong bytes. What
            arrived so far is kept for the next try unless it is known to be wrong.
    """
    targets = [folder / safe_path(file.path) for file in files]
    with exclusive(folder):
        stop = threading.Event()
        parts = [
            _Part(file, target, client, progress or _ignore, stop)
            for file, target in zip(files, targets, strict=True)
            if not is_whole(target, file.n_bytes)
        ]
        check_room(folder, sum(part.missing_bytes() for part in parts))
        _fetch_all(parts, client.workers, stop)
        for part in parts:
            part.finish()
    return targets


def is_whole(path: Path, n_bytes: int | None) -> bool:
    """Whether the file is here, and of the size that it must have if that is known."""
    return path.is_file() and n_bytes in (None, path.stat().st_size)


def _fetch_all(parts: Sequence[_Part], workers: int, stop: threading.Event) -> None:
    """Several at a time; when one fails, the others stop too."""
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(part.fetch) for part in parts]
        try:
            done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
        for job in done:
            job.result()


def check_room(folder: Path, n_bytes: int) -> None:
    """Raises DownloadError if the disk cannot take `n_bytes` more."""
    free = shutil.disk_usage(folder).free
    if n_bytes + _SPARE_BYTES > free:
        raise DownloadError(
            f"{n_bytes / 1e9:.1f} GB are still to be fetched, but the disk of {folder} has only "
            f"{free / 1e9:.1f} GB free",
            "Free some space, or set OCTAVO_MODELS to a folder on another disk.",
        )


def _ignore(path: str, done_bytes: int, total_bytes: int | None) -> None:
    pass


class _Part:
    """One file on its way."""

    def __init__(
        self,
        file: RemoteFile,
        target: Path,
        client: Client,
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self.file = file
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self.tag_path = target.with_name(target.name + ".part.json")
        self.client = client
        self.progress = progress
        self.stop = stop

    def have_bytes(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def missing_bytes(self) -> int:
        return max(0, (self.file.n_bytes or 0) - self.have_bytes())

    def fetch(self) -> None:
        """Try until the file is whole; then verify it."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        idle, most = 0, self.have_bytes()
        while self.file.n_bytes is None or self.have_bytes() != self.file.n_bytes:
            try:
                self.attempt()
                break
            except HttpError as error:
                if error.http_status == 416:
                    self.forget()
                elif not error.is_passing and (error.http_status or not self.have_bytes()):
                    raise  # a source that never answered will not; one that did may be back soon
                # Measured by the longest so far: a source that lies must not go round for ever.
                idle = 0 if self.have_bytes() > most else idle + 1
                most = max(most, self.have_bytes())
                if idle >= self.client.attempts:
                    raise
                pause_s = max(error.retry_after_s, self.client.pause_s * 2**idle)
            if self.stop.wait(pause_s):
                raise DownloadError("The download was stopped")
        self.verify()

    def attempt(self) -> None:
        """One request, from where the part ends if the source can do that."""
        have, tag = self.have_bytes(), self.tag()
        headers = dict(self.file.headers)
        if have and (tag or self.file.sha256):
            headers["Range"] = f"bytes={have}-"
            if tag:
                headers["If-Range"] = tag
        with self.client.get(self.file.url, headers) as answer:
            if answer.status == 206 and not self.continues(answer, have, tag):
                self.forget()
                raise HttpError(f"{self.file.path} changed at the source while it was fetched")
            if answer.status != 206:
                have = 0
                self.forget()
            total = self.total_bytes(answer, have)
            self.keep_tag(answer)
            with self.path.open("ab") as out:
                self.receive(answer, out, have, total)

    def continues(self, answer: http.client.HTTPResponse, have: int, tag: str) -> bool:
        """Whether a partial answer is the rest of what is here."""
        starts_here = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        return starts_here and (not tag or answer.headers.get("ETag", tag) == tag)

    def total_bytes(self, answer: http.client.HTTPResponse, have: int) -> int | None:
        """Size of the whole file; what the hub lists and what the source sends must agree."""
        length = answer.headers.get("Content-Length", "")
        sent = have + int(length) if length.isdecimal() else None
        listed = self.file.n_bytes
        if sent is None or listed is None:
            check_room(self.target.parent, (sent or have) - have)
            return listed or sent
        if listed != sent:
            first = answer.read(SNIFF_BYTES) if not have else b""
            self.check_first(first)
            raise DownloadError(
                f"The source sends {sent:,} bytes for {self.file.path}, expected {listed:,}",
                "It is another file than the one that was asked for. Try another source.",
            )
        return listed

    def receive(
        self, answer: http.client.HTTPResponse, out: BinaryIO, have: int, total: int | None
    ) -> None:
        while total is None or have < total:
            if self.stop.is_set():
                raise DownloadError("The download was stopped")
            try:
                chunk = answer.read(_CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise HttpError(f"The source stopped sending {self.file.path}: {error}") from error
            if not chunk:
                break
            if have == 0:
                self.check_first(chunk[:SNIFF_BYTES])
            if total is None:
                check_room(self.target.parent, len(chunk))
            out.write(chunk)
            have += len(chunk)
            self.progress(self.file.path, have, total)
        out.flush()
        if total is not None and have < total:
            raise HttpError(f"The source sent {have:,} of {total:,} bytes of {self.file.path}")

    def check_first(self, head: bytes) -> None:
        """Refuse a log-in page or an error text before it is stored as a model."""
        try:
            check_start(head, len(head), self.file.path)
        except UnsupportedError:
            return  # another version of GGUF: not the download's business
        except FileFormatError as error:
            self.forget()
            raise DownloadError(f"The source sent something else: {error.message}") from error

    # Verification

    def verify(self) -> None:
        """The checksum where the hub gives one, and a sound header. Wrong files are deleted."""
        if self.file.sha256 and self.sha256() != self.file.sha256.lower():
            self.forget()
            raise DownloadError(
                f"{self.file.path} arrived damaged: its SHA-256 is not the one that is expected",
                "Try again, or another source.",
            )
        try:
            check_file(self.path)
        except UnsupportedError:
            return
        except FileFormatError as error:
            self.forget()
            raise DownloadError(
                f"{self.file.path} arrived damaged: {error.message}", "Try another source."
            ) from error

    def sha256(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def finish(self) -> None:
        """Give the verified file its name."""
        self.path.replace(self.target)
        self.tag_path.unlink(missing_ok=True)

    # The version of the remote file that the part belongs to

    def tag(self) -> str:
        try:
            kept: Any = json.loads(self.tag_path.read_text("utf-8"))
            return str(kept["etag"]) if kept["url"] == self.file.url else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def keep_tag(self, answer: http.client.HTTPResponse) -> None:
        tag = answer.headers.get("ETag", "")
        # A weak tag does not promise the same bytes.
        kept = {"url": self.file.url, "etag": "" if tag.startswith("W/") else tag}
        self.tag_path.write_text(json.dumps(kept), "utf-8")

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.tag_path.unlink(missing_ok=True)
