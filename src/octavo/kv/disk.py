"""Timelines in files: saved when a program ends, restored when the next one starts.

    magic "OCTAVOKV" | version u32 | bytes of the description u32 | CRC-32 of the description u32
    description: JSON with the binding, the number of tokens and the snapshots' positions
    sections, each followed by its CRC-32 u32: ids int32; the pages of each attention layer; of
    each snapshot, each recurrent layer's convolution inputs and state

Everything is little-endian. The binding names the model's fingerprint, the cache format and the
shape of every layer: a file goes only into a cache with the same binding. All lengths follow from
the description, so the file's size is checked before anything is taken from the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FileFormatError, NotFoundError
from octavo.kv.cache import Cache, Ids, Timeline, pages_of
from octavo.ops import host
from octavo.ops.backend import Memory
from octavo.record import dataclass

MAGIC = b"OCTAVOKV"
VERSION = 1
_START = struct.Struct("<8sIII")
_CRC = struct.Struct("<I")
_MAX_DESCRIPTION_BYTES = 1 << 24
_DELETE = "Delete the file; the conversation is then computed again."


@dataclass(frozen=True)
class Section:
    """Arrays that follow each other in the file, and the memory that they are in."""

    arrays: list[NDArray[Any]]
    memory: Memory


@dataclass(frozen=True)
class _Description:
    n_tokens: int
    snapshots: tuple[int, ...]  # rising numbers of tokens


def save(
    timeline: Timeline, path: Path, fingerprint: str, go_on: Callable[[], bool] = lambda: True
) -> bool:
    """Write a timeline with its snapshots; the state of a running one becomes one of them.

    `fingerprint` names the model's bytes. The file appears whole or not at all, and only its
    owner may read it: it holds the conversation. `go_on` is asked before each section; when it
    says False nothing is written, and False returned.

    Raises:
        NotFoundError: the folder cannot be written to, or the disk is full.
    """
    cache = timeline.cache
    states = _states(timeline)
    positions = sorted(states)
    description = json.dumps(
        {
            "binding": _binding(cache, fingerprint),
            "n_tokens": timeline.n_tokens,
            "snapshots": positions,
        }
    ).encode()
    start = _START.pack(MAGIC, VERSION, len(description), zlib.crc32(description))
    pages = timeline.pages[: pages_of(timeline.n_tokens)]
    sections = [_ids_section(timeline.ids.copy()), *_page_sections(cache, pages)]
    for n in positions:
        sections += _state_sections(cache, states[n])
    try:
        return _write(path, start + description, sections, go_on)
    except OSError as error:
        raise NotFoundError(
            f"{path} cannot be written: {error.strerror or error}",
            "Check that the folder exists, that you may write to it and that the disk has room.",
        ) from error


def peek(path: Path, cache: Cache, fingerprint: str) -> tuple[Ids, tuple[int, ...]]:
    """The ids (n,) in a file for this cache, and the numbers of tokens with a snapshot.

    The rest is not read, only its size is looked at.

    Raises:
        NotFoundError: there is no such file, or it cannot be read.
        FileFormatError: not ours, of another version, model or cache format, or damaged.
    """
    try:
        with path.open("rb") as file:
            description = _read_description(file, path, _binding(cache, fingerprint))
            _check_size(file, path, cache, description)
            return _read_ids(file, path, description.n_tokens), description.snapshots
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from error


def places(timeline: Timeline) -> tuple[int, ...]:
    """The numbers of tokens with a snapshot in its file, rising."""
    return tuple(sorted(_states(timeline)))


def file_bytes(timeline: Timeline) -> int:
    """About how large its file is; the description is not counted."""
    cache, n_pages = timeline.cache, pages_of(timeline.n_tokens)
    n_states = len(_states(timeline))
    return n_pages * cache.page_bytes + 4 * timeline.n_tokens + n_states * _state_bytes(cache)


def restore(cache: Cache, path: Path, fingerprint: str) -> Timeline:
    """A parked timeline with what the file holds; `PrefixStore.keep` it, or `fork` it to run.

    Of more snapshots than slots are free, the newest are taken.

    Raises:
        NotFoundError: there is no such file, or it cannot be read.
        FileFormatError: not ours, of another version, model or cache format, or damaged.
        ContextFullError: more tokens than the context holds, or the cache is full.
    """
    timeline = Timeline(cache, -1)
    try:
        with path.open("rb") as file:
            description = _read_description(file, path, _binding(cache, fingerprint))
            _check_size(file, path, cache, description)
            _fill(timeline, file, path, description)
    except OSError as error:
        timeline.close()
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from error
    except BaseException:
        timeline.close()
        raise
    return timeline


def _fill(timeline: Timeline, file: BinaryIO, path: Path, description: _Description) -> None:
    cache = timeline.cache
    timeline.reserve(description.n_tokens)
    ids = _read_ids(file, path, description.n_tokens)
    for section in _page_sections(cache, timeline.pages):
        _read(file, path, section)
    timeline.advance(ids)
    n_skipped = max(0, len(description.snapshots) - max(cache.slots.n_free, 1))
    file.seek(n_skipped * _state_bytes(cache), os.SEEK_CUR)
    for n in description.snapshots[n_skipped:]:
        slot = cache.take_slot()
        timeline.keep(n, slot)
        for section in _state_sections(cache, slot):
            _read(file, path, section)


def _read_ids(file: BinaryIO, path: Path, n_tokens: int) -> Ids:
    ids = np.empty(n_tokens, "<i4")
    _read(file, path, _ids_section(ids))
    if ids.min() < 0:
        raise _damaged(path, "it holds a negative token id")
    return ids.astype(np.int32)


def _states(timeline: Timeline) -> dict[int, int]:
    """Number of tokens -> slot, of the snapshots and the state of a running timeline."""
    states = dict(timeline.snapshots)
    if timeline.slot >= 0 and timeline.n_tokens:
        states.setdefault(timeline.n_tokens, timeline.slot)
    return states


def _binding(cache: Cache, fingerprint: str) -> dict[str, Any]:
    layers = [[type(spec).__name__, *asdict(spec).values()] for spec in cache.specs]
    return {"fingerprint": fingerprint, "format": cache.format, "layers": layers}


def _read_description(file: BinaryIO, path: Path, binding: dict[str, Any]) -> _Description:
    start = file.read(_START.size)
    if len(start) < _START.size or not start.startswith(MAGIC):
        raise FileFormatError(f"{path.name} is not a saved conversation of Octavo", _DELETE)
    _, version, n_bytes, crc = _START.unpack(start)
    if version != VERSION:
        raise FileFormatError(
            f"{path.name} has version {version}, this program reads version {VERSION}", _DELETE
        )
    if n_bytes > _MAX_DESCRIPTION_BYTES:
        raise _damaged(path, f"its description claims {n_bytes:,} bytes")
    text = file.read(n_bytes)
    if len(text) < n_bytes or zlib.crc32(text) != crc:
        raise _damaged(path, "its description does not match its checksum")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(path, "its description is not JSON") from None
    return _checked(found, path, binding)


def _checked(found: Any, path: Path, binding: dict[str, Any]) -> _Description:
    if not isinstance(found, dict) or not isinstance(found.get("binding"), dict):
        raise _damaged(path, "its description lacks the binding")
    for key, what in (
        ("fingerprint", "another model file"),
        ("format", "another cache format"),
        ("layers", "a model of another shape"),
    ):
        if found["binding"].get(key) != binding[key]:
            raise FileFormatError(f"{path.name} was saved with {what}", _DELETE)
    n_tokens, snapshots = found.get("n_tokens"), found.get("snapshots")
    if type(n_tokens) is not int or not 0 < n_tokens < 1 << 31:
        raise _damaged(path, f"its number of tokens is {str(n_tokens)[:40]}")
    if not isinstance(snapshots, list) or any(type(n) is not int for n in snapshots):
        raise _damaged(path, "its snapshot positions are not a list of whole numbers")
    if snapshots != sorted({n for n in snapshots if 0 < n <= n_tokens}):
        raise _damaged(path, "its snapshot positions do not rise within its tokens")
    return _Description(n_tokens, tuple(snapshots))


def _check_size(file: BinaryIO, path: Path, cache: Cache, description: _Description) -> None:
    here = file.tell()
    n_pages = pages_of(description.n_tokens)
    expected = here + 4 * description.n_tokens + _CRC.size
    expected += n_pages * cache.page_bytes + len(cache.attention) * _CRC.size
    expected += len(description.snapshots) * _state_bytes(cache)
    actual = file.seek(0, os.SEEK_END)
    if actual != expected:
        raise _damaged(path, f"it has {actual:,} bytes, expected {expected:,}")
    file.seek(here)


def _state_bytes(cache: Cache) -> int:
    """Bytes of one snapshot in a file."""
    return cache.slot_bytes + len(cache.recurrent) * _CRC.size


def _ids_section(ids: Ids) -> Section:
    return Section([ids.astype("<i4", copy=False)], host)


def _page_sections(cache: Cache, pages: Sequence[int]) -> Iterator[Section]:
    for layer in cache.attention:
        yield Section([layer.data[page] for page in pages], layer.backend)


def _state_sections(cache: Cache, slot: int) -> Iterator[Section]:
    for layer in cache.recurrent:
        yield Section([layer.conv[slot], layer.state[slot]], layer.backend)


def _read(file: BinaryIO, path: Path, section: Section) -> None:
    """Read a section to where its arrays are and compare its checksum."""
    crc = 0
    for array in section.arrays:
        here = section.memory.fetch(array)  # in main memory: the array itself
        piece = here.reshape(-1).view(np.uint8).data
        if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
            raise _damaged(path, "it ends early")
        section.memory.store(array, here)
        crc = zlib.crc32(piece, crc)
    if file.read(_CRC.size) != _CRC.pack(crc):
        raise _damaged(path, "a part of it does not match its checksum")


def _write(
    path: Path, start: bytes, sections: Iterable[Section], go_on: Callable[[], bool]
) -> bool:
    """Write beside the place and move there, so that nobody ever sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(start)
            is_whole = all(go_on() and _write_section(file, section) for section in sections)
            file.flush()
            os.fsync(file.fileno())
        if is_whole:
            os.replace(name, path)
        else:
            os.unlink(name)
        return is_whole
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _write_section(file: BinaryIO, section: Section) -> bool:
    crc = 0
    for array in section.arrays:
        piece = section.memory.fetch(array).reshape(-1).view(np.uint8).data
        file.write(piece)
        crc = zlib.crc32(piece, crc)
    file.write(_CRC.pack(crc))
    return True


def _damaged(path: Path, what: str) -> FileFormatError:
    return FileFormatError(f"{path.name} is damaged: {what}", _DELETE)
