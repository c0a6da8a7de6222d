"""GGUF headers built field by field, so that each field can be made wrong."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

STR, ARRAY = 8, 9


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(number: int, form: str, value: object) -> bytes:
    """A typed value: the type's number and the value packed as `form`."""
    return struct.pack("<I", number) + struct.pack(f"<{form}", value)


def string(value: bytes | str) -> bytes:
    return struct.pack("<I", STR) + text(value)


def array(number: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IIQ", ARRAY, number, count) + items


@dataclass(frozen=True)
class Row:
    """An entry of the tensor table; `axes` in the file's order."""

    name: bytes = b"a.weight"
    axes: tuple[int, ...] = (8,)
    type_id: int = 0
    offset: int = 0
    n_axes: int | None = None

    def pack(self) -> bytes:
        n_axes = len(self.axes) if self.n_axes is None else self.n_axes
        out = text(self.name) + struct.pack("<I", n_axes)
        out += struct.pack(f"<{len(self.axes)}Q", *self.axes)
        return out + struct.pack("<IQ", self.type_id, self.offset)


@dataclass(frozen=True)
class Raw:
    """A whole file. `n_tensors` and `n_keys` are the right ones unless given."""

    keys: tuple[tuple[bytes, bytes], ...] = ((b"general.architecture", string("llama")),)
    rows: tuple[Row, ...] = (Row(),)
    data: bytes = field(default=bytes(64))
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int | None = None
    n_keys: int | None = None
    alignment: int = 32

    def pack(self) -> bytes:
        n_tensors = len(self.rows) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        out = self.magic + struct.pack("<IQQ", self.version, n_tensors, n_keys)
        for key, value in self.keys:
            out += text(key) + value
        for row in self.rows:
            out += row.pack()
        return out + bytes(-len(out) % self.alignment) + self.data

    def with_key(self, key: str, value: bytes) -> Raw:
        return replace(self, keys=(*self.keys, (key.encode(), value)))
