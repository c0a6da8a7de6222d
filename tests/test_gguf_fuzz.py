"""Hostile GGUF files: only our errors, quickly, in little memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gguf_raw import Raw, Row, array, scalar, string, text
from octavo.errors import OctavoError
from octavo.gguf.header import MAX_KEYS, MAX_STRINGS, MAX_TENSORS
from octavo.gguf.meta import StringArray
from octavo.gguf.reader import open_gguf

MAX_SECONDS = 1.0
MAX_BYTES = 64 << 20


def everything_in(path: Path) -> None:
    """Open a file and touch all that the header led to. Any error but ours is a fault."""
    with suppress(OctavoError), open_gguf(path) as file:
        for key in file.metadata:
            value = file.metadata[key]
            if isinstance(value, StringArray):
                assert len(value.tolist()) == len(value)
        for name, info in file.tensors.items():
            assert file.data(name).nbytes == info.n_bytes


def header_of(path: Path) -> None:
    with suppress(OctavoError):
        open_gguf(path).close()


def is_cheap(action: Callable[[Path], None], path: Path) -> None:
    """Fails where `action` takes 64 MiB, or a second of the processor three times in turn.

    Other work on the machine slows a run; what is expensive by itself is so each time.
    """
    seconds = []
    while len(seconds) < 3 and min(seconds, default=MAX_SECONDS) >= MAX_SECONDS:
        start = time.thread_time()
        action(path)
        seconds.append(time.thread_time() - start)
    assert min(seconds) < MAX_SECONDS
    tracemalloc.start()
    try:
        action(path)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


@cache
def seeds() -> tuple[bytes, ...]:
    """The corpus: small valid files with every kind of value and tensor."""
    words = b"".join(text(word) for word in (b"a", b"", b"<|im_end|>", b"x" * 300, b"\0\0"))
    kinds = [(0, "B"), (1, "b"), (2, "H"), (3, "h"), (4, "I"), (5, "i"), (6, "f"), (7, "?"),
             (10, "Q"), (11, "q"), (12, "d")]  # fmt: skip
    full = Raw(rows=(Row(axes=(256, 2), type_id=12), Row(name=b"b", offset=288)), data=bytes(512))
    for number, form in kinds:
        full = full.with_key(f"k{number}", scalar(number, form, 1))
        size = struct.calcsize(form)
        full = full.with_key(f"array{number}", array(number, 3, b"\1" * 3 * size))
    full = full.with_key("tokens", array(8, 5, words))
    full = full.with_key("nested", array(9, 2, 2 * array(8, 5, words)[4:]))
    full = full.with_key("general.alignment", scalar(4, "I", 32))
    split = Raw().with_key("split.count", scalar(2, "H", 1)).with_key("split.no", scalar(2, "H", 0))
    vocabulary = Raw().with_key("tokens", array(8, 300, text(b"word") * 300))
    return full.pack(), split.pack(), vocabulary.pack(), replace(Raw(), version=2).pack()


@pytest.mark.parametrize("number", range(4))
def test_the_corpus_is_valid(tmp_path: Path, number: int) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(seeds()[number])
    open_gguf(path).close()


# Numbers that overflow something somewhere.
EDGES = [0, 1, 2, 7, 8, 9, 13, 0xFF, 0x100, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
         2**53, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 8, 2**64 - 1]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file with a few bytes, fields or stretches changed."""
    data = bytearray(draw(st.sampled_from(seeds())))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        change: Any = draw(st.sampled_from(["flip", "number", "cut", "insert", "remove", "copy"]))
        if change == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "number":
            form = draw(st.sampled_from(["<I", "<Q"]))
            raw = struct.pack(
                form, draw(st.sampled_from(EDGES)) & (2**32 - 1 if form == "<I" else -1)
            )
            data[at : at + len(raw)] = raw
        elif change == "cut":
            del data[at:]
        elif change == "insert":
            data[at:at] = draw(st.binary(max_size=40))
        elif change == "remove":
            del data[at : at + draw(st.integers(1, 40))]
        else:
            there = draw(st.integers(0, len(data)))
            data[at:at] = data[there : there + draw(st.integers(1, 400))]
    return bytes(data)


quick = settings(
    deadline=None,
    max_examples=250,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quick
@given(data=mutated())
def test_mutated_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    is_cheap(everything_in, path)


@quick
@given(start=st.sampled_from([b"", b"GGUF", b"GGUF\3\0\0\0"]), rest=st.binary(max_size=300))
def test_random_bytes(tmp_path: Path, start: bytes, rest: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(start + rest)
    is_cheap(everything_in, path)


@pytest.mark.parametrize(("number", "step"), [(0, 1), (1, 1), (2, 13), (3, 1)])
def test_every_byte_of_a_seed_set_to_its_extremes(tmp_path: Path, number: int, step: int) -> None:
    path = tmp_path / "x.gguf"
    seed = seeds()[number]
    for at in range(0, min(len(seed), 900), step):
        for value in (0, 0xFF):
            path.write_bytes(seed[:at] + bytes([value]) + seed[at + 1 :])
            everything_in(path)


def many_keys(n: int) -> bytes:
    keys = tuple((b"%05x" % i, string(b"")) for i in range(n))
    return replace(Raw(), keys=keys).pack()


def many_tensors(n: int) -> bytes:
    return replace(Raw(), rows=tuple(Row(name=b"%05x" % i, offset=32 * i) for i in range(n)),
                   data=bytes(32 * n)).pack()  # fmt: skip


def many_strings(n: int, item: bytes) -> bytes:
    return Raw().with_key("tokens", array(8, n, text(item) * n)).pack()


def many_arrays(n: int) -> bytes:
    return Raw().with_key("nested", array(9, n, array(0, 0, b"")[4:] * n)).pack()


LARGE = {
    "as many keys as are read": lambda: many_keys(MAX_KEYS),
    "more keys": lambda: many_keys(MAX_KEYS + 1),
    "as many tensors as are read": lambda: many_tensors(MAX_TENSORS),
    "empty strings": lambda: many_strings(1_000_000, b""),
    "alternating strings": lambda: many_strings(300_000, b"\1\0\0\0\0\0\0\0"),
    "more strings than are read": lambda: many_strings(MAX_STRINGS + 1, b""),
    "two arrays of many strings": lambda: (
        Raw()
        .with_key("a", array(8, MAX_STRINGS // 2 + 1, bytes(8) * (MAX_STRINGS // 2 + 1)))
        .with_key("b", array(8, MAX_STRINGS // 2 + 1, bytes(8) * (MAX_STRINGS // 2 + 1)))
        .pack()
    ),
    "nested arrays": lambda: many_arrays(100_000),
    "long string": lambda: Raw().with_key("k", string(b"x" * (80 << 20))).pack(),
    "long array": lambda: Raw().with_key("k", array(7, 80 << 20, bytes(80 << 20))).pack(),
    "long list": lambda: Raw().with_key("k", array(12, 10 << 20, bytes(80 << 20))).pack(),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_hostile_files_are_cheap(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(LARGE[kind]())
    is_cheap(header_of, path)
