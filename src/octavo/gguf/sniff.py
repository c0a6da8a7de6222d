"""What a file is that is not a GGUF file this version reads: one sentence and one remedy each."""

from __future__ import annotations

import codecs
import json

from octavo.errors import FileFormatError, UnsupportedError

SNIFF_BYTES = 4096
_PULL = "octavo pull hf:OWNER/REPO:FILE"
_FETCH = f"Fetch the model file itself: {_PULL}"
_CONVERT = f"Octavo reads GGUF files. Look for a GGUF version of this model: {_PULL}"

# The magic numbers of the formats before GGUF, in both byte orders.
_OLD = {b"ggml", b"lmgg", b"ggmf", b"fmgg", b"ggjt", b"tjgg", b"ggla", b"algg"}
_PACKED = (
    (b"\x1f\x8b", "gzip"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"),
    (b"7z\xbc\xaf", "7-Zip"), (b"Rar!", "RAR"), (b"\x04\x22\x4d\x18", "lz4"),
)  # fmt: skip


def check_start(head: bytes, n_bytes: int, name: str) -> None:
    """Accept the first bytes of a GGUF v2 or v3 file; `head` is up to `SNIFF_BYTES` long.

    Raises:
        FileFormatError: what the file is instead, and the command that mends it.
        UnsupportedError: a GGUF version or byte order this version does not read.
    """
    if n_bytes == 0:
        raise FileFormatError(f"{name} is empty: the download did not begin", _FETCH)
    if head[:4] != b"GGUF":
        what, hint = _foreign(head)
        raise FileFormatError(f"{name} {what}", hint)
    if len(head) < 24:
        raise FileFormatError(
            f"{name} is cut short: a GGUF file has 24 bytes at least, this has {n_bytes}", _FETCH
        )
    version = int.from_bytes(head[4:8], "little")
    if version in (2, 3):
        return
    if version & 0xFFFF == 0 and version:
        raise UnsupportedError(
            f"{name} is a big-endian GGUF file, made for another kind of processor",
            f"Fetch the usual (little-endian) file: {_PULL}",
        )
    if version == 1:
        raise UnsupportedError(
            f"{name} is GGUF version 1, a format of 2023 that was used for a few weeks",
            f"Fetch a newer file of this model: {_PULL}",
        )
    raise UnsupportedError(
        f"{name} says it is GGUF version {version}; this version of Octavo reads 2 and 3",
        f"Update Octavo, or fetch the file again: {_PULL}",
    )


def _foreign(head: bytes) -> tuple[str, str]:
    """(what it is, remedy) for a file that does not begin with GGUF."""
    if head[:4] in _OLD:
        return (
            "is in an old format from before GGUF (ggml, ggjt or ggla)",
            f"Fetch a GGUF file of this model: {_PULL}",
        )
    if head[:4] == b"PK\x03\x04":
        return _archive(head)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return (
            "is a Python pickle, as in old PyTorch checkpoints; Octavo never opens pickles, "
            "because they can run programs",
            _CONVERT,
        )
    for magic, label in _PACKED:
        if head.startswith(magic):
            return f"is packed ({label})", "Unpack it first, then open the .gguf file inside."
    if _is_safetensors(head):
        return "is a safetensors file", _CONVERT
    if not head.strip(b"\0"):
        return "begins with zeros only: a download that reserved the space and never filled it", (
            _FETCH
        )
    return _text(head) or (
        f"is not a GGUF file: it begins with the bytes {head[:8].hex(' ')}",
        _FETCH,
    )


def _archive(head: bytes) -> tuple[str, str]:
    if b"data.pkl" in head or b"archive/" in head[:64]:
        return "is a PyTorch checkpoint (a ZIP archive with a pickle inside)", _CONVERT
    return (
        "is a ZIP archive; if it is not a PyTorch checkpoint, a model may be inside",
        f"Unpack it and open the .gguf file inside, or fetch one: {_PULL}",
    )


def _is_safetensors(head: bytes) -> bool:
    length = int.from_bytes(head[:8], "little")
    return 2 <= length < 1 << 30 and head[8:].lstrip()[:1] == b"{"


def _text(head: bytes) -> tuple[str, str] | None:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lower = start[:200].lower()
    if lower.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return (
            "is a web page, not a model: the link led to a page about the file, or to a log-in "
            "or error page",
            _FETCH,
        )
    if start.startswith(b"version https://git-lfs"):
        return (
            "is a Git-LFS pointer: a few lines that stand for the real file, which was not fetched",
            f"Run `git lfs pull` in that folder, or fetch the file: {_PULL}",
        )
    if start[:1] == b"{" or (start[:1] == b"[" and start[1:].lstrip()[:1] in b'{["]-0123456789'):
        return _json(start)
    try:
        # An incremental decoder forgives a character that is cut at SNIFF_BYTES.
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None
    if b"\0" in head:
        return None
    shown = start[:60].decode("utf-8", "replace").splitlines()[:1] or [""]
    return f"is a text file, not a model: it begins with {shown[0]!r}", _FETCH


def _json(start: bytes) -> tuple[str, str]:
    try:
        found = json.loads(start)
    except (ValueError, RecursionError):
        found = None
    error = found.get("error", found.get("message")) if isinstance(found, dict) else None
    if error:
        return (
            f"is a server's error answer saved as a file; it says: {str(error)[:200]!r}",
            f"{_FETCH} (a gated model needs a token in HF_TOKEN)",
        )
    return "is JSON text, not a model: a configuration, an index or an error answer", _FETCH
