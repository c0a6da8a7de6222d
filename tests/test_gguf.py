"""GGUF files: what is written is read back, by us and by the gguf package; faults have words."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from gguf_raw import Raw, Row, array, scalar, string, text
from octavo.errors import FileFormatError, NotFoundError, OctavoError, UnsupportedError
from octavo.gguf.ggml_types import GGML_TYPES, by_id, by_name
from octavo.gguf.header import MAX_ARRAY_DEPTH
from octavo.gguf.meta import Metadata, StringArray, TextSlice, Typed
from octavo.gguf.reader import GGUFFile, check_file, open_gguf
from octavo.gguf.shards import shard_name
from octavo.gguf.strings import index_strings
from octavo.gguf.writer import write_gguf

# Types


@pytest.mark.parametrize("kind", GGML_TYPES.values(), ids=lambda kind: kind.name)
def test_type_table_is_that_of_the_gguf_package(kind: object) -> None:
    assert isinstance(kind, type(by_name("f32")))
    theirs = GGMLQuantizationType(kind.id)
    assert theirs.name.lower() == kind.name
    assert GGML_QUANT_SIZES[theirs] == (kind.block_elements, kind.block_bytes)
    assert by_name(kind.name) is by_id(kind.id, "x") is kind
    assert kind.n_bytes(3 * kind.block_elements) == 3 * kind.block_bytes


@pytest.mark.parametrize(
    ("type_id", "phrase"),
    [(4, "withdrew"), (36, "withdrew"), (9, "intermediate"), (41, "q1_0"), (42, "q2_0"),
     (137, "ik_llama"), (60, "newer"), (2**32 - 1, "ik_llama")],
)  # fmt: skip
def test_unreadable_types_have_own_sentences(tmp_path: Path, type_id: int, phrase: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(Raw(rows=(Row(type_id=type_id),)).pack())
    with pytest.raises(UnsupportedError, match=phrase) as caught:
        open_gguf(path)
    assert "a.weight" in caught.value.message
    assert caught.value.hint


def test_unknown_type_name() -> None:
    with pytest.raises(UnsupportedError, match="q9_9"):
        by_name("q9_9")


# Round trips

TENSORS = [
    ("token_embd.weight", (33, 32), "q8_0"),
    ("one", (1,), "f32"),
    ("cube", (3, 7, 257), "f16"),
    ("four", (2, 1, 5, 256), "q4_k"),
    ("ints", (9,), "i32"),
]
VALUES = {
    "general.architecture": "llama",
    "general.name": "Prüfling 模型",
    "a.u32": 7,
    "a.i32": -7,
    "a.u64": 1 << 40,
    "a.i64": -(1 << 40),
    "a.f32": 0.5,
    "a.true": True,
    "a.false": False,
    "a.empty": "",
    "a.list.i": [1, -2, 3],
    "a.list.f": [0.5, 2.0],
    "a.list.b": [True, False, True],
    "a.list.s": ["", "x", "ß" * 300, "a\0b"],
    "a.typed": Typed("u8", 255),
    "a.typed.f64": Typed("f64", 1e300),
    "a.none": Typed("[str]", []),
    "a.array": np.arange(5, dtype=np.uint16),
    "a.nested": [[1, 2], [3]],
}


def source(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> bytes:
    return rng.bytes(by_name(kind).n_bytes(math.prod(shape)))


def write(path: Path, rng: np.random.Generator, **more: object) -> dict[str, bytes]:
    data = {name: source(rng, shape, kind) for name, shape, kind in TENSORS}
    rows = [(name, shape, kind, data[name]) for name, shape, kind in TENSORS]
    write_gguf(path, {**VALUES, **more}, rows)
    return data


def plain(value: object) -> object:
    if isinstance(value, (StringArray, np.ndarray)):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_what_is_written_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "x.gguf"
    data = write(path, rng)
    with open_gguf(path) as file:
        assert file.path == path
        assert file.shards == (path,)
        assert file.n_bytes == path.stat().st_size
        for key, value in VALUES.items():
            wanted = value.value if isinstance(value, Typed) else plain(value)
            assert plain(file.metadata[key]) == wanted, key
        kinds = {key: file.metadata.typed(key).kind for key in file.metadata}
        assert kinds["a.u32"] == "u32"
        assert kinds["a.i32"] == "i32"
        assert kinds["a.u64"] == "u64"
        assert kinds["a.i64"] == "i64"
        assert kinds["a.typed"] == "u8"
        assert kinds["a.list.i"] == "[i32]"
        assert kinds["a.nested"] == "[[i32]]"
        assert kinds["a.array"] == "[u16]"
        for name, shape, kind in TENSORS:
            info = file.tensors[name]
            assert (info.shape, info.type_name, info.shard) == (shape, kind, 0)
            assert info.n_elements == math.prod(shape)
            assert file.data(name).tobytes() == data[name]
            assert not file.data(name).flags.writeable


def test_the_gguf_package_reads_the_same(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "x.gguf"
    data = write(path, rng, **{"a.nested": 0})  # their reader has no nested arrays
    theirs = gguf.GGUFReader(path)
    assert {t.name: t.data.tobytes() for t in theirs.tensors} == data
    with open_gguf(path) as file:
        for tensor in theirs.tensors:
            ours = file.tensors[tensor.name]
            assert ours.shape == tuple(int(axis) for axis in tensor.shape[::-1])
            assert ours.offset == tensor.data_offset
        for key, value in theirs.fields.items():
            if not key.startswith("GGUF.") and key != "a.none":
                assert value.contents() == plain(file.metadata[key]), key


def test_a_file_of_the_gguf_package_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "x.gguf"
    out = gguf.GGUFWriter(path, "qwen3")
    out.add_custom_alignment(64)
    out.add_context_length(4096)
    out.add_token_list(["a", "b", "\ufffd", "long" * 100])
    out.add_array("x.floats", [0.25, -1.0])
    weights = rng.standard_normal((5, 64)).astype(np.float32)
    out.add_tensor("w", weights)
    out.add_tensor("v", weights[0].astype(np.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    with open_gguf(path) as file:
        assert file.metadata.arch("context_length", int) == 4096
        assert list(file.metadata["tokenizer.ggml.tokens"]) == ["a", "b", "\ufffd", "long" * 100]
        assert file.metadata["x.floats"].tolist() == [0.25, -1.0]
        assert np.array_equal(file.data("w").view(np.float32).reshape(5, 64), weights)
        assert file.tensors["v"].offset % 64 == 0


def test_copies_of_real_files_are_the_same_bytes(vectors: Path, tmp_path: Path) -> None:
    models = sorted((vectors / "models").glob("*.gguf"))
    assert models
    for path in models:
        with open_gguf(path) as file:
            copy_of(file, tmp_path / "copy.gguf")
        assert (tmp_path / "copy.gguf").read_bytes() == path.read_bytes(), path.name


def copy_of(file: GGUFFile, path: Path) -> None:
    def reads(name: str) -> Callable[[], np.ndarray]:
        return lambda: file.data(name)

    rows = [(t.name, t.shape, t.type_name, reads(t.name)) for t in file.tensors.values()]
    write_gguf(path, file.metadata, rows)


# Writing


def test_sources_are_asked_one_at_a_time(tmp_path: Path) -> None:
    asked: list[str] = []

    def makes(name: str) -> Callable[[], list[bytes]]:
        def pieces() -> list[bytes]:
            asked.append(name)
            assert len(asked) == 1 + "abc".index(name)
            return [name.encode() * 3, b"", name.encode() * 13]

        return pieces

    rows = [(name, (16,), "i8", makes(name)) for name in "abc"]
    write_gguf(tmp_path / "x.gguf", {"general.alignment": 8}, iter(rows))
    assert asked == ["a", "b", "c"]
    with open_gguf(tmp_path / "x.gguf") as file:
        assert file.data("b").tobytes() == b"b" * 16


def test_an_array_of_any_type_and_order_is_written_as_its_bytes(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    write_gguf(tmp_path / "x.gguf", {}, [("w", values.shape, "f32", values)])
    with open_gguf(tmp_path / "x.gguf") as file:
        assert np.array_equal(file.data("w").view(np.float32).reshape(4, 3), values)


@pytest.mark.parametrize("n_bytes", [0, 31, 33, 100])
def test_a_wrong_number_of_bytes_leaves_nothing(tmp_path: Path, n_bytes: int) -> None:
    with pytest.raises(FileFormatError, match=f"{n_bytes} bytes, expected 32"):
        write_gguf(tmp_path / "x.gguf", {}, [("w", (8,), "f32", bytes(n_bytes))])
    assert list(tmp_path.iterdir()) == []


def test_a_failing_source_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"old")

    def fails() -> bytes:
        raise MemoryError("no room")

    with pytest.raises(MemoryError):
        write_gguf(path, {}, [("w", (8,), "f32", fails)])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("metadata", "tensors", "phrase"),
    [
        ({"k": []}, [], "empty list"),
        ({"k": [1, "a"]}, [], "int, str"),
        ({"k": [[1], ["a"]]}, [], "different types"),
        ({"k": object()}, [], "object"),
        ({"k": 1 << 64}, [], "holds int"),
        ({"k": Typed("u8", 256)}, [], "does not fit"),
        ({"k": Typed("[u8]", ["a"])}, [], "does not fit"),
        ({"k": Typed("u9", 1)}, [], "u9"),
        ({"k": np.zeros((2, 2))}, [], "2-dimensional"),
        ({"k": np.zeros(2, np.float16)}, [], "float16"),
        ({"": 1}, [], "0 bytes"),
        ({"general.alignment": 24}, [], "power of two"),
        ({}, [("w", (0,), "f32", b"")], "shape"),
        ({}, [("w", (), "f32", b"")], "shape"),
        ({}, [("w", (1,) * 5, "f32", b"")], "shape"),
        ({}, [("w", (1,), "f32", bytes(4))] * 2, "same name"),
        ({}, [("w", (33,), "q8_0", bytes(34))], "multiple of 32"),
    ],
)
def test_what_the_format_does_not_allow_is_not_written(
    tmp_path: Path, metadata: dict[str, object], tensors: list[object], phrase: str
) -> None:
    with pytest.raises(FileFormatError, match=phrase):
        write_gguf(tmp_path / "x.gguf", metadata, tensors)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# Metadata


def test_values_are_asked_for_by_type() -> None:
    meta = Metadata(
        {
            "general.architecture": Typed("str", TextSlice(b"..llama..", 2, 7)),
            "llama.n": Typed("u32", 4),
            "llama.x": Typed("f32", 0.5),
            "llama.flag": Typed("bool", True),
            "llama.per": Typed("[u32]", np.array([1, 2, 3], np.uint32)),
        }
    )
    assert meta.architecture == "llama"
    assert meta.arch("n", int) == 4
    assert meta.arch("n", float) == 4.0
    assert type(meta.arch("n", float)) is float
    assert meta.arch("missing", int, 9) == 9
    assert meta.arch("per", np.ndarray).tolist() == [1, 2, 3]
    assert meta.per_layer("per", int, 2, 0) == [1, 2]
    assert meta.per_layer("n", int, 3, 0) == [4, 4, 4]
    assert meta.per_layer("missing", int, 2, 5) == [5, 5]
    for key, kind, found, expected in (
        ("llama.x", int, "f32", "whole number"),
        ("llama.flag", int, "bool", "whole number"),
        ("llama.n", str, "u32", "string"),
        ("llama.n", bool, "u32", "true or false"),
        ("llama.n", np.ndarray, "u32", "array"),
        ("llama.per", int, r"\[u32\]", "whole number"),
    ):
        with pytest.raises(FileFormatError, match=f"{key}.* type {found}, expected .*{expected}"):
            meta.get(key, kind)
    with pytest.raises(FileFormatError, match=r"lacks .*llama\.missing"):
        meta.arch("missing", int)
    with pytest.raises(FileFormatError, match="array of 3, expected 4"):
        meta.per_layer("per", int, 4, 0)


def packed(items: list[bytes]) -> bytes:
    return b"".join(text(item) for item in items)


usual = st.binary(min_size=1, max_size=20).map(lambda raw: raw.replace(b"\0", b"z"))
odd = st.one_of(st.just(b""), st.binary(max_size=9), st.sampled_from([255, 256, 70_000]).map(bytes))


@given(st.lists(st.one_of(usual, usual, odd), max_size=80), st.binary(max_size=9))
def test_strings_are_found_whatever_they_hold(items: list[bytes], before: bytes) -> None:
    data = before + packed(items)
    starts = index_strings(data, len(before), len(items), len(data))
    assert starts is not None
    found = StringArray(data, starts)
    assert [found.raw(i) for i in range(len(found))] == items
    assert [item.encode("utf-8", "surrogateescape") for item in found] == items


@pytest.mark.parametrize("n_items", [0, 1, 15, 16, 17, 257, 30_000])
@pytest.mark.parametrize("every", [0, 1, 7, 5000])
def test_long_arrays_with_odd_items(n_items: int, every: int, rng: np.random.Generator) -> None:
    lengths = rng.integers(1, 12, n_items)
    items = [b"abcdefghijklm"[:n] for n in lengths.tolist()]
    if every:
        items[::every] = [bytes(i % 300) for i in range(len(items[::every]))]
    data = packed(items) + b"\x01\0\0\0\0\0\0\0a" * 40  # more of the same form follows
    starts = index_strings(data, 0, n_items, len(data))
    assert starts is not None
    assert StringArray(data, starts).tolist() == [item.decode() for item in items]


@pytest.mark.parametrize("n_items", [1, 40, 5000])
def test_strings_past_the_end_are_refused(n_items: int) -> None:
    data = packed([b"word"] * n_items)
    assert index_strings(data, 0, n_items, len(data)) is not None
    assert index_strings(data, 0, n_items, len(data) - 1) is None
    assert index_strings(data, 0, n_items + 1, len(data)) is None
    assert index_strings(data[:-5] + b"\xff" * 5, 0, n_items + 1, len(data)) is None


def test_a_string_array_is_a_sequence() -> None:
    data = packed([b"a", b"bc", b"\xff", b""])
    starts = index_strings(data, 0, 4, len(data))
    assert starts is not None
    found = StringArray(data, starts)
    assert (len(found), found[1], found[-1], found[:2]) == (4, "bc", "", ["a", "bc"])
    assert list(reversed(found)) == ["", "\udcff", "bc", "a"]
    assert "bc" in found
    with pytest.raises(IndexError):
        found[4]


# Damaged headers

F32_4 = scalar(6, "f", 1.0)
DEEP = array(9, 1, b"")[4:]  # one more level around what follows, without the type in front

FAULTS: dict[str, tuple[Raw, str]] = {
    "tensors": (replace(Raw(), n_tensors=2**63), "claims .* tensors"),
    "tensors just too many": (replace(Raw(), n_tensors=9), "claims 9 tensors"),
    "keys": (replace(Raw(), n_keys=2**64 - 1), "claims .* metadata keys"),
    "key twice": (Raw().with_key("general.architecture", string("x")), "appears twice"),
    "key empty": (Raw().with_key("", string("x")), "0 bytes long"),
    "key long": (Raw().with_key("k" * 2000, string("x")), "2,000 bytes long"),
    "key not UTF-8": (replace(Raw(), keys=((b"\xff", string("x")),)), "not UTF-8"),
    "value type": (Raw().with_key("k", struct.pack("<I", 13)), "value type 13"),
    "bool": (Raw().with_key("k", scalar(7, "B", 2)), "true .* or false"),
    "string length": (Raw().with_key("k", struct.pack("<IQ", 8, 2**40)), "should take"),
    "array count": (Raw().with_key("k", array(5, 2**62, b"")), "claims .* items"),
    "array of bools": (Raw().with_key("k", array(7, 2, b"\1\2")), "only true"),
    "array of strings": (Raw().with_key("k", array(8, 3, text("a"))), "reaches past the end"),
    "array of many strings": (Raw().with_key("k", array(8, 2**60, b"")), "claims .* strings"),
    "array type": (Raw().with_key("k", array(99, 0, b"")), "value type 99"),
    "deep arrays": (
        Raw().with_key("k", array(9, 1, DEEP * (MAX_ARRAY_DEPTH - 1))), "nests arrays deeper"),
    "mixed arrays": (
        Raw().with_key("k", array(9, 2, array(0, 1, b"a")[4:] + array(1, 1, b"a")[4:])),
        "mixes arrays"),
    "alignment 0": (Raw().with_key("general.alignment", scalar(4, "I", 0)), "power of two"),
    "alignment 24": (Raw().with_key("general.alignment", scalar(4, "I", 24)), "power of two"),
    "alignment large": (Raw().with_key("general.alignment", scalar(4, "I", 2**31)), "power of"),
    "alignment string": (Raw().with_key("general.alignment", string("32")), "of type str"),
    "tensor twice": (
        replace(Raw(), rows=(Row(), Row(offset=32))), "'a.weight' appears twice"),
    "tensor name": (replace(Raw(), rows=(Row(name=b"\xc3\x28"),)), "not UTF-8"),
    "no tensor name": (replace(Raw(), rows=(Row(name=b""),)), "0 bytes long"),
    "five axes": (replace(Raw(), rows=(Row(axes=(1,) * 5),)), "5 dimensions"),
    "2^32 axes": (replace(Raw(), rows=(Row(n_axes=2**32 - 1),)), "dimensions"),
    "axis 0": (replace(Raw(), rows=(Row(axes=(8, 0)),)), "zero or negative"),
    "axis negative": (replace(Raw(), rows=(Row(axes=(2**64 - 8,)),)), "zero or negative"),
    "product overflows": (replace(Raw(), rows=(Row(axes=(2**32,) * 4),)), "cut short"),
    "product overflows to 0": (replace(Raw(), rows=(Row(axes=(2**62, 4)),)), "cut short"),
    "block": (replace(Raw(), rows=(Row(axes=(8,), type_id=8),)), "multiple of 32"),
    "offset unaligned": (replace(Raw(), rows=(Row(offset=4),)), "multiple of 32"),
    "offset far": (replace(Raw(), rows=(Row(offset=2**63),)), "cut short"),
    "offset wraps": (replace(Raw(), rows=(Row(offset=2**64 - 32),)), "cut short"),
    "overlap": (replace(Raw(), rows=(Row(axes=(16,)), Row(name=b"b", offset=32))), "overlap"),
    "data missing": (replace(Raw(), data=bytes(31)), "ends at byte .* has only"),
    "architecture missing": (replace(Raw(), keys=(), n_keys=1), "cut short|bytes long"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_headers_are_named(tmp_path: Path, fault: str) -> None:
    raw, phrase = FAULTS[fault]
    path = tmp_path / "model.gguf"
    path.write_bytes(raw.pack())
    with pytest.raises(FileFormatError, match=phrase) as caught:
        open_gguf(path)
    assert "model.gguf" in caught.value.message
    assert "octavo pull" in caught.value.hint


def test_the_undamaged_file_opens(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(Raw().with_key("k", array(9, 1, DEEP * 2 + array(5, 1, bytes(4))[4:])).pack())
    with open_gguf(path) as file:
        assert file.metadata.typed("k").kind == "[[[[i32]]]]"
        assert file.tensors["a.weight"].shape == (8,)
    path.write_bytes(replace(Raw(), version=2, rows=(Row(axes=()),)).pack())
    with open_gguf(path) as file:
        assert file.tensors["a.weight"].shape == (1,)


def test_every_truncation_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "model.gguf"
    write(path, rng)
    whole = path.read_bytes()
    last = max(open_gguf(path).tensors.values(), key=lambda tensor: tensor.offset)
    needed = last.offset + last.n_bytes
    for n_bytes in [*range(0, 1200, 5), needed - 1]:
        path.write_bytes(whole[:n_bytes])
        with pytest.raises(FileFormatError, match="cut short|empty|claims|text file"):
            open_gguf(path)
    path.write_bytes(whole[:needed])
    open_gguf(path).close()


# Files that are something else

SAFETENSORS = struct.pack("<Q", 64) + b'{"__metadata__":{"format":"pt"}}' + b" " * 32
OTHERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "web page": (b"\n <!DOCTYPE html><html><head>", "web page"),
    "web page with mark": (b"\xef\xbb\xbf<HTML>", "web page"),
    "xml error": (b'<?xml version="1.0"?><Error>', "web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "Git-LFS"),
    "error json": (b'{"error":"Repository not found"}', "error answer .*Repository not found"),
    "json": (b'{"architectures": ["LlamaForCausalLM"]}', "JSON text"),
    "cut json": (b'{"weight_map": {"a": ' + b'"x",' * 3000, "JSON text"),
    "safetensors": (SAFETENSORS, "safetensors"),
    "ggml": (b"lmgg" + bytes(40), "old format"),
    "ggjt": (b"tjgg\3\0\0\0" + bytes(40), "old format"),
    "ggla": (b"algg" + bytes(40), "old format"),
    "ggmf": (b"fmgg" + bytes(40), "old format"),
    "version 1": (replace(Raw(), version=1).pack(), "version 1"),
    "version 4": (replace(Raw(), version=4).pack(), "version 4"),
    "version 0": (replace(Raw(), version=0).pack(), "version 0"),
    "big endian": (b"GGUF\0\0\0\3" + bytes(40), "big-endian"),
    "pickle": (b"\x80\x02}q\0" + bytes(40), "pickle"),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), "gzip"),
    "xz": (b"\xfd7zXZ\0" + bytes(40), "xz"),
    "zeros": (bytes(5000), "zeros"),
    "text": ("Grüße\n".encode() * 2000, "text file"),
    "noise": (bytes(range(200, 256)) * 3, "not a GGUF file"),
    "short": (b"GGUF\3\0\0\0", "cut short"),
    "very short": (b"GG", "text file"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_files_have_own_sentences(tmp_path: Path, kind: str) -> None:
    content, phrase = OTHERS[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=phrase) as caught:
        open_gguf(path)
    assert "model.gguf" in caught.value.message
    assert "magic" not in str(caught.value).lower()
    assert "octavo pull" in caught.value.hint or "Unpack" in caught.value.hint


@pytest.mark.parametrize(("member", "phrase"), [("archive/data.pkl", "PyTorch"), ("a.txt", "ZIP")])
def test_archives(tmp_path: Path, member: str, phrase: str) -> None:
    path = tmp_path / "model.bin"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(member, b"x" * 100)
    with pytest.raises(FileFormatError, match=phrase):
        open_gguf(path)


def test_sentences_differ() -> None:
    phrases = [phrase for _, phrase in OTHERS.values()]
    assert len(set(phrases)) >= 16


def test_paths_that_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(NotFoundError, match="no GGUF file"):
        open_gguf(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(SAFETENSORS)
    with pytest.raises(NotFoundError, match="safetensors, not as GGUF"):
        open_gguf(tmp_path)


# Sets of shards


def make_set(folder: Path, rng: np.random.Generator, count: int = 3, stem: str = "big") -> None:
    folder.mkdir(exist_ok=True)
    for i in range(count):
        keys: dict[str, object] = {
            "split.no": Typed("u16", i),
            "split.count": Typed("u16", count),
            "split.tensors.count": Typed("i32", count - 1),
        }
        if i == 0:
            keys = {"general.architecture": "llama", "llama.block_count": 2, **keys}
        # The first part often holds the metadata alone.
        rows = [(f"blk.{i}.w", (8,), "f32", rng.bytes(32))] if i else []
        write_gguf(folder / shard_name(stem, i + 1, count), keys, rows)


def test_any_shard_or_the_folder_opens_the_set(tmp_path: Path, rng: np.random.Generator) -> None:
    make_set(tmp_path, rng)
    paths = sorted(tmp_path.iterdir())
    (tmp_path / "mmproj-big.gguf").write_bytes(Raw().pack())
    (tmp_path / "notes.txt").write_text("x")
    bytes_of = {}
    for given_path in [*paths, tmp_path]:
        with open_gguf(given_path) as file:
            assert file.shards == tuple(paths)
            assert file.metadata.arch("block_count", int) == 2
            assert [t.shard for t in file.tensors.values()] == [1, 2]
            assert file.n_bytes == sum(path.stat().st_size for path in paths)
            bytes_of[given_path] = [file.data(name).tobytes() for name in file.tensors]
    assert len({repr(found) for found in bytes_of.values()}) == 1


def test_a_missing_shard_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    make_set(tmp_path, rng)
    (tmp_path / shard_name("big", 2, 3)).unlink()
    with pytest.raises(
        FileFormatError, match=r"1 of 3 parts .* big-00002-of-00003\.gguf"
    ) as caught:
        open_gguf(tmp_path / shard_name("big", 3, 3))
    assert "octavo pull" in caught.value.hint


def test_a_renamed_shard_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    make_set(tmp_path, rng)
    (tmp_path / shard_name("big", 1, 3)).rename(tmp_path / "big.gguf")
    with pytest.raises(FileFormatError, match="name does not say which"):
        open_gguf(tmp_path / "big.gguf")


def test_shards_of_other_sets_are_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    make_set(tmp_path / "a", rng)
    first, second, third = (tmp_path / "a" / shard_name("big", i, 3) for i in (1, 2, 3))
    kept = second.read_bytes()
    second.write_bytes(third.read_bytes())
    with pytest.raises(FileFormatError, match="not part 2 of 3"):
        open_gguf(first)
    keys = {"split.no": Typed("u16", 1), "split.count": Typed("u16", 3)}
    write_gguf(second, keys, [("blk.2.w", (8,), "f32", bytes(32))])
    with pytest.raises(FileFormatError, match="in two parts"):
        open_gguf(first)
    write_gguf(second, keys, [])
    with pytest.raises(FileFormatError, match="hold 1 tensors, expected 2"):
        open_gguf(first)
    second.write_bytes(kept[:-40])
    with pytest.raises(FileFormatError, match="cut short"):
        open_gguf(first)


def test_a_name_like_a_shard_is_no_shard(tmp_path: Path) -> None:
    for name in ("best-of-breed.gguf", "model-00001-of-00002.gguf", "x-00003-of-00002.gguf"):
        (tmp_path / name).write_bytes(Raw().pack())
        open_gguf(tmp_path / name).close()
    with pytest.raises(NotFoundError, match="3 models") as caught:
        open_gguf(tmp_path)
    assert "best-of-breed.gguf" in caught.value.message


@pytest.mark.parametrize("value", [scalar(4, "I", 2**31), string("3"), scalar(5, "i", -1)])
def test_a_hostile_split_count(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "x-00001-of-00002.gguf"
    path.write_bytes(Raw().with_key("split.count", value).pack())
    with pytest.raises(FileFormatError, match=r"split\.count"):
        open_gguf(path)


# Life time


def test_views_outlive_the_file(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "x.gguf"
    data = write(path, rng)
    file = open_gguf(path)
    view = file.data("one")
    file.close()
    assert view.tobytes() == data["one"]
    with pytest.raises(OctavoError, match="no tensor 'one'"):
        file.data("one")


def test_one_file_can_be_checked_alone(tmp_path: Path, rng: np.random.Generator) -> None:
    make_set(tmp_path, rng)
    shard = tmp_path / shard_name("big", 2, 3)
    alone = shard.rename(tmp_path / "download.part")
    check_file(alone)
    alone.write_bytes(alone.read_bytes()[:-33])
    with pytest.raises(FileFormatError, match="cut short"):
        check_file(alone)
