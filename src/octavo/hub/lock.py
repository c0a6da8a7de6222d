"""One process at a time fetches into a folder; the others wait and then find the files there."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_POLL_S = 0.2

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make the folder and hold it. The system lets go of it when the process ends, however."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as file:
        while True:
            try:
                _try_lock(file)
                break
            except OSError:
                time.sleep(_POLL_S)
        yield
