"""Writing GGUF files: header first, then one tensor after the other, whole or not at all."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from octavo.errors import FileFormatError
from octavo.gguf.ggml_types import GgmlType, by_name
from octavo.gguf.header import DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMENSIONS, MAX_NAME_BYTES
from octavo.gguf.meta import KINDS, Metadata, StringArray, Typed

# The bytes of a tensor, or a function that makes them when their turn has come: whole, or piece
# by piece. Functions are how a file larger than the memory is written.
Bytes = bytes | bytearray | memoryview | np.ndarray
Source = Bytes | Callable[[], Bytes | Iterable[Bytes]]
Tensor = tuple[str, Sequence[int], str, Source]

VERSION = 3
_FORMS = {
    "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f",
    "bool": "?", "u64": "Q", "i64": "q", "f64": "d",
}  # fmt: skip
_BY_DTYPE = {
    "u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "f4": "f32",
    "b1": "bool", "u8": "u64", "i8": "i64", "f8": "f64",
}  # fmt: skip


def write_gguf(
    path: str | Path, metadata: Mapping[str, Any] | Metadata, tensors: Iterable[Tensor]
) -> None:
    """Write a GGUF v3 file; `path` appears only when all of it is on disk.

    Args:
        metadata: values are bool, int, float, str, lists or arrays of these, or `Typed` where the
            type on disk matters. Plain ints become u32 (i32, u64, i64 if they must), floats f32.
            `general.alignment` is obeyed. A `Metadata` is copied with its types.
        tensors: (name, shape in NumPy order, type name, source). The names and shapes are read
            first, each source only when its turn has come.

    Raises:
        FileFormatError: a value, name, shape or number of bytes that the format does not allow.
    """
    target = Path(path)
    rows = [(name, *_layout(name, shape, kind), data) for name, shape, kind, data in tensors]
    if len({row[0] for row in rows}) < len(rows):
        raise _refuse("two tensors have the same name")
    entries = {key: _typed(key, value) for key, value in _items(metadata)}
    alignment = _alignment(entries.get("general.alignment"))
    header = _header(entries, rows, alignment)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(header)
            file.write(bytes(-len(header) % alignment))
            for name, shape, kind, data in rows:
                _write_tensor(file, name, kind.n_bytes(math.prod(shape)), data, alignment)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _refuse(what: str) -> FileFormatError:
    return FileFormatError(f"Cannot write this GGUF file: {what}", "Correct the tensors or keys.")


# Header


def _header(
    entries: Mapping[str, Typed], rows: Sequence[tuple[str, Any, GgmlType, Any]], alignment: int
) -> bytes:
    out = bytearray(b"GGUF")
    out += struct.pack("<IQQ", VERSION, len(rows), len(entries))
    for key, entry in entries.items():
        out += _label(key, "metadata key")
        out += _value(key, entry)
    offset = 0
    for name, shape, kind, _ in rows:
        out += _label(name, "tensor name") + struct.pack("<I", len(shape))
        out += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", kind.id, offset)
        n_bytes = kind.n_bytes(math.prod(shape))
        offset += n_bytes + -n_bytes % alignment
    return bytes(out)


def _layout(name: str, shape: Sequence[int], kind_name: str) -> tuple[tuple[int, ...], GgmlType]:
    axes, kind = tuple(int(axis) for axis in shape), by_name(kind_name)
    if not 1 <= len(axes) <= MAX_DIMENSIONS or min(axes) < 1:
        raise _refuse(f"tensor {name!r} has shape {axes}, expected 1 to 4 positive dimensions")
    if axes[-1] % kind.block_elements:
        raise _refuse(
            f"tensor {name!r} has rows of {axes[-1]:,} values, but {kind.name} needs a multiple of "
            f"{kind.block_elements}"
        )
    return axes, kind


def _label(name: str, what: str) -> bytes:
    raw = name.encode()
    if not 0 < len(raw) <= MAX_NAME_BYTES:
        raise _refuse(f"a {what} of {len(raw)} bytes, expected 1 to {MAX_NAME_BYTES}")
    return struct.pack("<Q", len(raw)) + raw


def _alignment(entry: Typed | None) -> int:
    value = DEFAULT_ALIGNMENT if entry is None else entry.value
    if type(value) is not int or not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
        raise _refuse(f"'general.alignment' is {value!r}, expected a power of two")
    return value


# Values


def _items(metadata: Mapping[str, Any] | Metadata) -> Iterator[tuple[str, Any]]:
    if isinstance(metadata, Metadata):
        return ((key, metadata.typed(key)) for key in metadata)
    return iter(metadata.items())


def _typed(key: str, value: Any) -> Typed:
    """The value with a type: its own if it has one, else the usual one of its Python type."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, StringArray):
        return Typed("[str]", value)
    if isinstance(value, (np.ndarray, np.generic)):
        kind = _BY_DTYPE.get(value.dtype.str[1:])
        if kind is None or value.ndim > 1:
            raise _refuse(f"{key!r} is a {value.ndim}-dimensional array of {value.dtype}")
        return Typed(f"[{kind}]", value) if value.ndim else Typed(kind, value.item())
    if isinstance(value, (list, tuple)):
        return Typed(f"[{_common_kind(key, value)}]", value)
    return Typed(_scalar_kind(key, [value]), value)


def _common_kind(key: str, items: Sequence[Any]) -> str:
    if not items:
        raise _refuse(f"{key!r} is an empty list; give its type: Typed('[str]', [])")
    if isinstance(items[0], (list, tuple, np.ndarray)):
        kinds = {_typed(key, item).kind for item in items}
        if len(kinds) > 1:
            raise _refuse(f"{key!r} mixes lists of different types")
        return kinds.pop()
    kind = _scalar_kind(key, items)
    # Other writers use i32 for lists of whole numbers; readers of token types rely on it.
    return "i32" if kind == "u32" and max(items) < 1 << 31 else kind


def _scalar_kind(key: str, items: Sequence[Any]) -> str:
    types = {type(item) for item in items}
    if types == {bool}:
        return "bool"
    if types == {str}:
        return "str"
    if types == {int}:
        low, high = min(items), max(items)
        for kind, least, most in (
            ("u32", 0, 1 << 32),
            ("i32", -1 << 31, 1 << 31),
            ("u64", 0, 1 << 64),
            ("i64", -1 << 63, 1 << 63),
        ):
            if least <= low and high < most:
                return kind
    if float in types and types <= {int, float}:
        return "f32"
    shown = ", ".join(sorted(t.__name__ for t in types))
    raise _refuse(f"{key!r} holds {shown}, expected bool, int, float or str")


def _value(key: str, entry: Typed) -> bytes:
    """Type number and value; for an array also the element type and the count."""
    return struct.pack("<I", _kind_number(key, entry.kind)) + _body(key, entry.kind, entry.value)


def _kind_number(key: str, kind: str) -> int:
    name = "array" if kind.startswith("[") and kind.endswith("]") else kind
    if name not in KINDS:
        raise _refuse(f"{key!r} has the type {kind!r}, known are {', '.join(KINDS)}")
    return KINDS.index(name)


def _body(key: str, kind: str, value: Any) -> bytes:
    try:
        if kind == "str":
            return _text(value.encode("utf-8", "surrogateescape"))
        if not kind.startswith("["):
            return struct.pack(f"<{_FORMS[kind]}", value)
        inner = kind[1:-1]
        return struct.pack("<IQ", _kind_number(key, inner), len(value)) + _array(key, inner, value)
    except (struct.error, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise _refuse(f"{key!r} does not fit the type {kind}: {error}") from error


def _array(key: str, inner: str, items: Any) -> bytes:
    if isinstance(items, StringArray):
        return b"".join(_text(items.raw(i)) for i in range(len(items)))
    if inner == "str" or inner.startswith("["):
        return b"".join(_body(key, inner, item) for item in items)
    if isinstance(items, np.ndarray):
        return np.ascontiguousarray(items).astype(f"<{_dtype(inner)}", copy=False).tobytes()
    return struct.pack(f"<{len(items)}{_FORMS[inner]}", *items)


def _dtype(kind: str) -> str:
    return next(code for code, name in _BY_DTYPE.items() if name == kind)


def _text(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


# Data


def _write_tensor(
    file: BinaryIO, name: str, expected_bytes: int, source: Source, alignment: int
) -> None:
    written = 0
    for piece in _pieces(source):
        raw = np.ascontiguousarray(piece).data if isinstance(piece, np.ndarray) else piece
        view = memoryview(raw)
        written += view.nbytes
        if written <= expected_bytes:
            file.write(view)
    if written != expected_bytes:
        raise _refuse(f"tensor {name!r} came with {written:,} bytes, expected {expected_bytes:,}")
    file.write(bytes(-written % alignment))


def _pieces(source: Source) -> Iterator[Bytes]:
    made = source() if callable(source) else source
    if isinstance(made, (bytes, bytearray, memoryview, np.ndarray)):
        yield made
    else:
        yield from made
