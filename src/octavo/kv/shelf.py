"""Kept prefixes in a folder, so that they outlive the program and what memory holds.

    FOLDER / first 16 digits of the model's fingerprint . cache format / digest of the ids .kv

One engine's thread uses a shelf. Several programs may share a folder: a file that another one
deleted is just not found. Files that are damaged or something else are left alone, with a line in
the log. The least recently used files of all models go when the folder would exceed its budget.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from octavo.errors import CacheFullError, OctavoError
from octavo.kv import disk
from octavo.kv.cache import Cache, Ids, Timeline, common_length
from octavo.record import dataclass

LOG = logging.getLogger("octavo.kv")

SUFFIX = ".kv"
# Less is computed again about as fast as a file is found, opened and read.
LEAST_TOKENS = 256


@dataclass(frozen=True, eq=False)
class _Entry:
    """A file and what it can give."""

    path: Path
    ids: Ids
    places: tuple[int, ...]  # with recurrent layers: the numbers of tokens to go back to

    def reachable(self, n: int, is_recurrent: bool) -> int:
        """The largest m <= n from which a sequence can go on."""
        return max((m for m in self.places if m <= n), default=0) if is_recurrent else n


class Shelf:
    """The saved prefixes of one cache.

    Args:
        folder: made if it is not there, readable by its owner only.
        fingerprint: names the model's bytes; files of other models are not looked at.
        budget_bytes: most that the files of all models in the folder take.
        least_tokens: shorter prefixes are not saved, smaller gains not restored.
    """

    def __init__(
        self,
        folder: Path,
        cache: Cache,
        fingerprint: str,
        *,
        budget_bytes: int,
        least_tokens: int = LEAST_TOKENS,
    ) -> None:
        self._root = folder
        self._folder = folder / f"{fingerprint[:16]}.{cache.format}"
        self._cache = cache
        self._fingerprint = fingerprint
        self._budget_bytes = budget_bytes
        self._least_tokens = least_tokens
        self._entries: list[_Entry] | None = None  # None: the folder was not looked at yet
        self.n_saved = 0
        self.n_restored = 0

    def restore(self, wanted: Ids, n_known: int) -> Timeline | None:
        """A parked timeline with a prefix of `wanted` (n,) worth reading; else None.

        `n_known` tokens can be had without a file.
        """
        is_recurrent = bool(self._cache.recurrent)
        gains = [
            (entry.reachable(common_length(entry.ids, wanted), is_recurrent), entry)
            for entry in self._known()
        ]
        n, entry = max(gains, key=lambda gain: gain[0], default=(0, None))
        if entry is None or n - n_known < self._least_tokens:
            return None
        try:
            timeline = disk.restore(self._cache, entry.path, self._fingerprint)
        except CacheFullError:  # running sequences need the room
            return None
        except OctavoError as error:
            self._forget(entry, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(entry.path)  # used last
        self.n_restored += 1
        return timeline

    def wants(self, timeline: Timeline) -> bool:
        """Whether a timeline is long enough, fits, and is not in a file already."""
        n = timeline.n_tokens
        if n < self._least_tokens or disk.file_bytes(timeline) > self._budget_bytes:
            return False
        return not any(common_length(e.ids, timeline.ids) == n for e in self._known())

    def save(self, timeline: Timeline, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Save a timeline if `wants` says so. Files with beginnings of it are given up.

        `go_on` is asked now and then; False ends the work without a file.
        -> whether it is in a file now.
        """
        if not self.wants(timeline):
            return False
        ids = timeline.ids.copy()
        name = hashlib.blake2b(ids.tobytes(), digest_size=12).hexdigest()
        path = self._folder / f"{name}{SUFFIX}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(disk.file_bytes(timeline))
            if not disk.save(timeline, path, self._fingerprint, go_on):
                return False
        except (OctavoError, OSError) as error:
            LOG.warning("a prefix of %d tokens was not saved: %s", len(ids), error)
            return False
        for entry in self._known():
            if common_length(entry.ids, ids) == len(entry.ids):
                self._delete(entry.path)
        self._known().append(_Entry(path, ids, disk.places(timeline)))
        self.n_saved += 1
        return True

    @property
    def n_bytes(self) -> int:
        """Bytes of all files in the folder, those of other models too."""
        return sum(size for _, size, _ in self._files())

    def _known(self) -> list[_Entry]:
        if self._entries is None:
            self._entries = []
            for path in sorted(self._folder.glob(f"*{SUFFIX}")):
                try:
                    ids, places = disk.peek(path, self._cache, self._fingerprint)
                except OctavoError as error:
                    LOG.warning("%s is ignored: %s", path, error.message)
                else:
                    self._entries.append(_Entry(path, ids, places))
        return self._entries

    def _make_room(self, n_bytes: int) -> None:
        """Delete the files that were not used for longest until `n_bytes` more are allowed."""
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        for _, size, path in files:
            if held + n_bytes <= self._budget_bytes:
                return
            self._delete(path)
            held -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of each file."""
        found = []
        for path in self._root.glob(f"*/*{SUFFIX}"):
            with contextlib.suppress(OSError):  # another program deleted it
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def _delete(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # gone already, or (Windows) another program reads it
            path.unlink()
        self._entries = [e for e in self._known() if e.path != path]

    def _forget(self, entry: _Entry, error: OctavoError) -> None:
        LOG.warning("%s is ignored: %s", entry.path, error.message)
        self._entries = [e for e in self._known() if e is not entry]
