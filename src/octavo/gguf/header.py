"""The header of one GGUF file, read with every count, length and offset checked first.

Nothing here trusts a number from the file: it is compared with the bytes that are left before
anything of that size is made. What the keys mean is not known here.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np

from octavo.errors import FileFormatError
from octavo.gguf.ggml_types import by_id
from octavo.gguf.meta import KINDS, FileData, StringArray, TextSlice, Typed
from octavo.gguf.strings import index_strings

# Far above every real file; below, what a hostile one can make us allocate (tens of MB).
MAX_KEYS = 1 << 15
MAX_TENSORS = 1 << 15
MAX_STRINGS = 1 << 21
MAX_NESTED_ARRAYS = 1 << 14
MAX_ARRAY_DEPTH = 4
MAX_NAME_BYTES = 1 << 10
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32

FETCH_AGAIN = "Fetch the file again: octavo pull hf:OWNER/REPO:FILE"
_BROKEN = "The file is damaged or was made by a faulty program. " + FETCH_AGAIN
_SCALARS = {
    "u8": "<B", "i8": "<b", "u16": "<H", "i16": "<h", "u32": "<I", "i32": "<i", "f32": "<f",
    "u64": "<Q", "i64": "<q", "f64": "<d", "bool": "<B",
}  # fmt: skip
_DTYPES = {
    "u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "f32": "<f4",
    "u64": "<u8", "i64": "<i8", "f64": "<f8", "bool": "u1",
}  # fmt: skip


class TensorInfo(NamedTuple):
    """One tensor on disk.

    `shape` is in NumPy order (the reverse of the file's): the last axis is contiguous and is the
    one that blocks run along. `offset` counts from the start of the file of shard `shard`.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    type_name: str
    n_bytes: int
    offset: int
    shard: int

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


class Header(NamedTuple):
    """What one file says of itself."""

    version: int
    entries: dict[str, Typed]
    tensors: list[TensorInfo]
    n_bytes: int  # of the whole file


def read_header(data: FileData, n_bytes: int, name: str, shard: int = 0) -> Header:
    """Parse the header in `data`, the bytes of a file of `n_bytes` (`data` may hold less of it).

    The first 8 bytes (magic and version) have been checked by the caller.

    Raises:
        FileFormatError: truncated or damaged; says where and what.
        UnsupportedError: a tensor type this version cannot read.
    """
    return _Parser(data, n_bytes, name, shard).header()


class _Parser:
    def __init__(self, data: FileData, n_bytes: int, name: str, shard: int) -> None:
        self.data = data
        self.end = len(data)
        self.n_bytes = n_bytes
        self.name = name
        self.shard = shard
        self.position = 4
        self.n_strings = 0
        self.n_nested = 0

    def header(self) -> Header:
        version = self.scalar("u32", "the version")
        n_tensors = self.count(MAX_TENSORS, 24, "tensors")
        n_keys = self.count(MAX_KEYS, 12, "metadata keys")
        entries: dict[str, Typed] = {}
        for _ in range(n_keys):
            key = self.label("a metadata key")
            if key in entries:
                self.fail(f"the metadata key {key!r} appears twice")
            entries[key] = self.value(key)
        alignment = self.alignment(entries.get("general.alignment"))
        rows = [self.tensor_row() for _ in range(n_tensors)]
        data_start = self.position + -self.position % alignment
        return Header(version, entries, self.place(rows, data_start, alignment), self.n_bytes)

    # Small pieces

    def fail(self, what: str) -> NoReturn:
        raise FileFormatError(f"{self.name}: {what}", _BROKEN)

    def take(self, n_bytes: int, what: str) -> int:
        """Step over `n_bytes`; where they begin."""
        start = self.position
        if n_bytes > self.end - start:
            raise FileFormatError(
                f"{self.name} is cut short or damaged: {what} should take {n_bytes:,} bytes from "
                f"byte {start:,} on, but the file has {self.n_bytes:,} bytes",
                FETCH_AGAIN,
            )
        self.position = start + n_bytes
        return start

    def scalar(self, kind: str, what: str) -> Any:
        form = _SCALARS[kind]
        value = struct.unpack_from(form, self.data, self.take(struct.calcsize(form), what))[0]
        if kind != "bool":
            return value
        if value > 1:
            self.fail(f"{what} should be true (1) or false (0), it is {value}")
        return value == 1

    def count(self, most: int, least_bytes: int, what: str) -> int:
        """A 64-bit count of things that take at least `least_bytes` each."""
        count: int = self.scalar("u64", f"the number of {what}")
        left = self.end - self.position
        if count > left // least_bytes:
            self.fail(f"it claims {count:,} {what}, more than its {self.n_bytes:,} bytes can hold")
        if count > most:
            self.fail(f"it claims {count:,} {what}; at most {most:,} are read")
        return count

    def text(self, what: str) -> TextSlice:
        length = self.scalar("u64", f"the length of {what}")
        start = self.take(length, what)
        return TextSlice(self.data, start, start + length)

    def label(self, what: str) -> str:
        """A key or a tensor name: short, not empty, UTF-8."""
        found = self.text(what)
        if not 0 < found.end - found.start <= MAX_NAME_BYTES:
            self.fail(
                f"{what} at byte {found.start:,} is {found.end - found.start:,} bytes long, "
                f"expected 1 to {MAX_NAME_BYTES:,}"
            )
        try:
            return self.data[found.start : found.end].decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} at byte {found.start:,} is not UTF-8 text")

    # Metadata

    def kind(self, what: str) -> str:
        number: int = self.scalar("u32", f"the type of {what}")
        if number >= len(KINDS):
            self.fail(f"{what} has value type {number}, known are 0 to {len(KINDS) - 1}")
        return KINDS[number]

    def value(self, key: str) -> Typed:
        what = f"the value of {key!r}"
        kind = self.kind(what)
        if kind == "str":
            return Typed(kind, self.text(what))
        if kind == "array":
            return self.array(what, 1)
        return Typed(kind, self.scalar(kind, what))

    def array(self, what: str, depth: int) -> Typed:
        kind = self.kind(what)
        if kind == "array":
            return self.nested(what, depth)
        if kind == "str":
            return Typed("[str]", self.strings(what))
        dtype = np.dtype(_DTYPES[kind])
        count = self.count(self.end, dtype.itemsize, f"items in {what}")
        start = self.take(count * dtype.itemsize, what)
        items = np.frombuffer(self.data, dtype, count, start)
        if kind == "bool":
            if count and items.max() > 1:
                self.fail(f"{what} should hold only true (1) and false (0)")
            items = items.view(np.bool_)
        return Typed(f"[{kind}]", items)

    def strings(self, what: str) -> StringArray:
        count = self.count(MAX_STRINGS - self.n_strings, 8, f"strings in {what}")
        self.n_strings += count
        starts = index_strings(self.data, self.position, count, self.end)
        if starts is None:
            raise FileFormatError(
                f"{self.name} is cut short or damaged: {what}, {count:,} strings from byte "
                f"{self.position:,} on, reaches past the end at {self.n_bytes:,} bytes",
                FETCH_AGAIN,
            )
        self.position = int(starts[-1])
        return StringArray(self.data, starts)

    def nested(self, what: str, depth: int) -> Typed:
        if depth == MAX_ARRAY_DEPTH:
            self.fail(f"{what} nests arrays deeper than {MAX_ARRAY_DEPTH} levels")
        count = self.count(MAX_NESTED_ARRAYS - self.n_nested, 12, f"arrays in {what}")
        self.n_nested += count
        items = [self.array(what, depth + 1) for _ in range(count)]
        kinds = {item.kind for item in items}
        if len(kinds) > 1:
            self.fail(f"{what} mixes arrays of different types: {', '.join(sorted(kinds))}")
        return Typed(f"[{kinds.pop() if kinds else '[u8]'}]", [item.value for item in items])

    def alignment(self, entry: Typed | None) -> int:
        if entry is None:
            return DEFAULT_ALIGNMENT
        value = entry.value
        whole = type(value) is int and 0 < value <= MAX_ALIGNMENT
        if not whole or value & (value - 1):
            shown = value if type(value) is int else f"of type {entry.kind}"
            self.fail(f"'general.alignment' is {shown}, expected a power of two")
        return int(value)

    # Tensors

    def tensor_row(self) -> TensorInfo:
        """One row of the tensor table; its offset still counts from the start of the data."""
        name = self.label("a tensor name")
        what = f"the entry of tensor {name!r}"
        n_axes: int = self.scalar("u32", what)
        if n_axes > MAX_DIMENSIONS:
            self.fail(f"tensor {name!r} has {n_axes} dimensions, at most {MAX_DIMENSIONS} expected")
        form = f"<{n_axes}QIQ"
        *stored, type_id, offset = struct.unpack_from(
            form, self.data, self.take(struct.calcsize(form), what)
        )
        axes: list[int] = stored or [1]
        # A number above 2^63 is a negative one for most programs that write files.
        if min(axes) == 0 or max(axes) >= 1 << 63:
            self.fail(f"tensor {name!r} has a zero or negative dimension: {axes}")
        kind = by_id(type_id, name)
        if axes[0] % kind.block_elements:
            self.fail(
                f"tensor {name!r} has rows of {axes[0]:,} values, but {kind.name} needs a "
                f"multiple of {kind.block_elements}"
            )
        n_bytes = kind.n_bytes(math.prod(axes))
        return TensorInfo(name, tuple(axes[::-1]), type_id, kind.name, n_bytes, offset, self.shard)

    def place(self, rows: list[TensorInfo], data_start: int, alignment: int) -> list[TensorInfo]:
        """The rows with offsets from the start of the file, in order, all inside, none shared."""
        names = {row.name for row in rows}
        if len(names) < len(rows):
            seen: set[str] = set()
            twice = next(r.name for r in rows if r.name in seen or seen.add(r.name))  # type: ignore[func-returns-value]
            self.fail(f"tensor {twice!r} appears twice")
        free_from, before = 0, ""
        for row in sorted(rows, key=lambda row: row.offset):
            if row.offset % alignment:
                self.fail(
                    f"tensor {row.name!r} begins at offset {row.offset:,}, expected a multiple of "
                    f"{alignment}"
                )
            if row.offset < free_from:
                self.fail(f"tensors {before!r} and {row.name!r} overlap")
            free_from, before = row.offset + row.n_bytes, row.name
            if data_start + free_from > self.n_bytes:
                self.cut_short(row, data_start)
        return [row._replace(offset=data_start + row.offset) for row in rows]

    def cut_short(self, row: TensorInfo, data_start: int) -> NoReturn:
        needed = data_start + row.offset + row.n_bytes
        raise FileFormatError(
            f"{self.name} is cut short: tensor {row.name!r} ends at byte {needed:,}, but the file "
            f"has only {self.n_bytes:,} bytes",
            FETCH_AGAIN,
        )
