"""Metadata of a GGUF file: keys with typed values, read only when asked for.

Strings and arrays of strings stay in the mapped file; only their places are kept. A vocabulary of
250 000 tokens therefore costs 2 MB and a few milliseconds until somebody wants the text.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from octavo.errors import FileFormatError

T = TypeVar("T")
FileData = mmap.mmap | bytes

_LENGTH_BYTES = 8

# Names of the value types by their number in the file; `array` is spelled "[element]".
KINDS = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "array", "u64", "i64", "f64")

_REQUIRED: Any = object()
_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


class Typed(NamedTuple):
    """A value with its type on disk: "u32", "f32", "str", "[str]", "[[i32]]" ..."""

    kind: str
    value: Any


class TextSlice(NamedTuple):
    """One string that is still in the file."""

    data: FileData
    start: int
    end: int

    def read(self) -> str:
        """The text; bytes that are not UTF-8 become U+FFFD."""
        return self.data[self.start : self.end].decode("utf-8", "replace")


class StringArray(Sequence[str]):
    """An array of strings in a file. Items are decoded at each access and not kept.

    Bytes that are not UTF-8 become surrogate escapes, so that different items stay different.
    `starts` (n + 1,) int64: where the length field of each item begins; the last is the end.
    """

    __slots__ = ("_data", "_starts")

    def __init__(self, data: FileData, starts: np.ndarray) -> None:
        self._data = data
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def raw(self, index: int) -> bytes:
        """The bytes of one item."""
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"item {index} of {n}")
        place = index % n
        return self._data[int(self._starts[place]) + _LENGTH_BYTES : int(self._starts[place + 1])]

    def packed(self) -> tuple[np.ndarray, np.ndarray, int]:
        """The array as it is in the file, uint8, nothing copied; starts in it; bytes of a gap.

        Item i is behind the gap that begins at `starts[i]`, and ends at `starts[i + 1]`.
        """
        first, end = int(self._starts[0]), int(self._starts[-1])
        raw = np.frombuffer(self._data, np.uint8)[first:end]
        return raw, self._starts - first, _LENGTH_BYTES

    def tolist(self) -> list[str]:
        """Every item as text: 0.05 s for 250 000."""
        if not len(self):
            return []
        first = int(self._starts[0])
        raw = np.frombuffer(self._data[first : int(self._starts[-1])], np.uint8).copy()
        # A zero byte in place of each length field: then all is decoded and cut at once.
        fields = self._starts[:-1] - first
        keep = np.ones(raw.size, bool)
        for byte in range(1, _LENGTH_BYTES):
            keep[fields + byte] = False
        raw[fields] = 0
        texts = raw[keep].tobytes().decode("utf-8", "surrogateescape").split("\0")[1:]
        # Zero bytes inside of items spoil that.
        return texts if len(texts) == len(self) else [self[i] for i in range(len(self))]


class Metadata:
    """The keys of one model. Values are asked for with the type they must have."""

    def __init__(self, entries: Mapping[str, Typed]) -> None:
        self._entries = dict(entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: str) -> Any:
        """The value as it is stored.

        Raises:
            FileFormatError: the key is absent.
        """
        return self.typed(key).value

    def typed(self, key: str) -> Typed:
        """The value and its type on disk; what a writer needs to copy it unchanged."""
        entry = self._entries.get(key)
        if entry is None:
            raise FileFormatError(
                f"The file lacks the metadata key {key!r}", "Use a complete file of this model."
            )
        if isinstance(entry.value, TextSlice):
            return Typed(entry.kind, entry.value.read())
        return entry

    def get(self, key: str, kind: type[T], default: T = _REQUIRED) -> T:
        """The value of `key` as `kind`: int, float, bool, str, np.ndarray, StringArray or list.

        A whole number is accepted where a float is asked for. Without a default the key must
        be there.

        Raises:
            FileFormatError: absent without a default, or of another type; both are named.
        """
        if key not in self._entries and default is not _REQUIRED:
            return default
        entry = self.typed(key)
        value = _as(entry.value, kind)
        if value is None:
            raise FileFormatError(
                f"The metadata key {key!r} has type {entry.kind}, expected "
                f"{_WORDS.get(kind, 'an array')}",
                "The file was made by a faulty converter; use another file of this model.",
            )
        return value

    @property
    def architecture(self) -> str:
        """`general.architecture`: the first part of the model's own keys."""
        return self.get("general.architecture", str)

    def arch(self, suffix: str, kind: type[T], default: T = _REQUIRED) -> T:
        """`get` for the key `<architecture>.<suffix>`."""
        return self.get(f"{self.architecture}.{suffix}", kind, default)

    def per_layer(self, suffix: str, kind: type[T], n_layers: int, default: T) -> list[T]:
        """A key of the architecture that is one value for all layers, or an array of one each.

        Raises:
            FileFormatError: of another type, or an array with fewer items than layers.
        """
        key = f"{self.architecture}.{suffix}"
        stored = self.typed(key).value if key in self else default
        if not isinstance(stored, np.ndarray):
            return [self.get(key, kind, default)] * n_layers
        values = [_as(item, kind) for item in stored[:n_layers].tolist()]
        good = [value for value in values if value is not None]
        if len(good) != n_layers:
            raise FileFormatError(
                f"The metadata key {key!r} is an array of {len(stored)}, expected "
                f"{n_layers} times {_WORDS.get(kind, 'an array')}",
                "The file was made by a faulty converter; use another file of this model.",
            )
        return good


def _as(value: Any, kind: type[T]) -> T | None:
    """`value` if it is of that kind; a bool is no number, a whole number is also a float."""
    wanted: Any = kind
    if wanted is float and type(value) is int:
        value = float(value)
    fits = type(value) is wanted if wanted in _WORDS else isinstance(value, wanted)
    return value if fits else None
