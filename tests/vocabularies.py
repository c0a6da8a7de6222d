"""Metadata and tokenizers from plain dictionaries and from the reference vocabularies."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np

from octavo.gguf.meta import Metadata, Typed
from octavo.gguf.reader import open_gguf
from octavo.text.tokenizer import Tokenizer
from tiny_vocabulary import byte_level, sentencepiece

CONTROL, USER_DEFINED = 3, 4


def metadata_of(values: dict[str, Any]) -> Metadata:
    """What a reader would give for a file with these values."""
    return Metadata({key: _typed(value) for key, value in values.items()})


def bpe_values(
    pre: str = "qwen2", *, control: tuple[str, ...] = (), user_defined: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A trained byte-level vocabulary with more special tokens at its end."""
    return _extended(byte_level(pre), control, user_defined)


def spm_values(
    *, control: tuple[str, ...] = (), user_defined: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A scored vocabulary with more special tokens at its end."""
    return _extended(sentencepiece(), control, user_defined)


def bpe(pre: str = "qwen2", **special: tuple[str, ...]) -> Tokenizer:
    return Tokenizer.from_metadata(metadata_of(bpe_values(pre, **special)))


def reference_metadata(vectors: Path, name: str, folder: Path) -> Metadata:
    """Metadata of a reference vocabulary: "tiny-NAME" of a model, else of `vocab/`."""
    if name.startswith("tiny-"):
        return open_gguf(vectors / "models" / f"{name.removeprefix('tiny-')}.gguf").metadata
    source = "qwen2" if name.startswith("qwen2") else name
    path = folder / f"{source}.gguf"
    if not path.exists():
        path.write_bytes(lzma.decompress((vectors / "vocab" / f"{source}.gguf.xz").read_bytes()))
    return open_gguf(path).metadata


def _extended(
    values: dict[str, Any], control: tuple[str, ...], user_defined: tuple[str, ...]
) -> dict[str, Any]:
    kinds = [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    values["tokenizer.ggml.tokens"] += [*control, *user_defined]
    values["tokenizer.ggml.token_type"] += kinds
    if "tokenizer.ggml.scores" in values:
        values["tokenizer.ggml.scores"] += [0.0] * len(kinds)
    return values


def _typed(value: Any) -> Typed:
    if isinstance(value, list):
        if value and isinstance(value[0], str):
            return Typed("[str]", value)
        is_float = bool(value) and isinstance(value[0], float)
        dtype = np.float32 if is_float else np.int32
        return Typed("[f32]" if is_float else "[i32]", np.array(value, dtype))
    kinds = {bool: "bool", int: "u32", str: "str", float: "f32"}
    return Typed(kinds[type(value)], value)
