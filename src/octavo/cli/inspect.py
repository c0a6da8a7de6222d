"""Show what is in a model file, without loading it.

Architecture, size, tensor types, tokenizer, chat template and the memory that it needs here. A
model that is not on this computer is looked at where it is; only its header is fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json, Model

if TYPE_CHECKING:
    from octavo.gguf.meta import Metadata
    from octavo.gguf.reader import GGUFFile

_SPECIAL = ("bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask")


def main(
    model: Model,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    json_output: Json = False,
) -> None:
    """The command."""
    with _opened(model) as file:
        found = describe(file)
        if tensors:
            found["tensors"] = tensor_rows(file)
    if json_output:
        screen.emit(found)
    else:
        typer.echo("\n".join(_lines(found)))


def _opened(model: str) -> GGUFFile:
    from octavo.gguf.reader import open_gguf
    from octavo.hub.local import find_kept
    from octavo.settings import Settings

    settings = Settings.from_environment()
    kept = find_kept(model, settings)
    if kept is not None:
        return open_gguf(kept)
    from octavo.hub.header import open_remote

    return open_remote(model, settings)


def describe(file: GGUFFile) -> dict[str, Any]:
    """What the header says, as JSON-ready values; None where it says nothing."""
    meta = file.metadata
    n_parameters = sum(tensor.n_elements for tensor in file.tensors.values())
    tensor_bytes = sum(tensor.n_bytes for tensor in file.tensors.values())
    return {
        "path": str(file.path),
        "files": len(file.shards),
        "gguf_version": file.version,
        "bytes": file.n_bytes,
        "architecture": meta.get("general.architecture", str, "?"),
        "name": meta.get("general.name", str, "") or None,
        "license": meta.get("general.license", str, "") or None,
        "parameters": n_parameters,
        "bits_per_weight": round(8 * tensor_bytes / max(n_parameters, 1), 3),
        "types": _types(file),
        "shape": _shape(meta),
        "has_mtp_head": any(".nextn." in name for name in file.tensors),
        "tokenizer": _tokenizer(meta),
        "has_chat_template": "tokenizer.chat_template" in meta,
        **_fit(file, tensor_bytes),
    }


def tensor_rows(file: GGUFFile) -> list[dict[str, Any]]:
    """Every tensor in file order; shapes in NumPy order."""
    return [
        {
            "name": tensor.name,
            "shape": list(tensor.shape),
            "type": tensor.type_name,
            "bytes": tensor.n_bytes,
            "offset": tensor.offset,
            "file": tensor.shard,
        }
        for tensor in file.tensors.values()
    ]


def _types(file: GGUFFile) -> list[dict[str, Any]]:
    """Tensors, parameters and bytes of each type, the largest first."""
    rows: dict[str, dict[str, Any]] = {}
    for tensor in file.tensors.values():
        empty = {"type": tensor.type_name, "tensors": 0, "parameters": 0, "bytes": 0}
        row = rows.setdefault(tensor.type_name, empty)
        row["tensors"] += 1
        row["parameters"] += tensor.n_elements
        row["bytes"] += tensor.n_bytes
    return sorted(rows.values(), key=lambda row: -int(row["bytes"]))


def _shape(meta: Metadata) -> dict[str, Any]:
    """The sizes that nearly every architecture has; a list where they differ between layers."""
    prefix = meta.get("general.architecture", str, "?")
    keys = {
        "context_length": "context_length",
        "layers": "block_count",
        "mtp_layers": "nextn_predict_layers",
        "embedding_length": "embedding_length",
        "feed_forward_length": "feed_forward_length",
        "heads": "attention.head_count",
        "kv_heads": "attention.head_count_kv",
        "experts": "expert_count",
        "experts_used": "expert_used_count",
    }
    return {name: _plain(meta, f"{prefix}.{key}") for name, key in keys.items()}


def _plain(meta: Metadata, key: str) -> Any:
    """A value for JSON: whole numbers, texts and lists of numbers; others only by their text."""
    import numpy as np

    if key not in meta:
        return None
    value = meta[key]
    if type(value) in (int, bool, str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return value.tolist()
    return str(value)


def _tokenizer(meta: Metadata) -> dict[str, Any] | None:
    if "tokenizer.ggml.model" not in meta:
        return None
    tokens = _length(meta, "tokenizer.ggml.tokens")
    special = {name: _plain(meta, f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL}
    return {
        "model": _plain(meta, "tokenizer.ggml.model"),
        "pre": _plain(meta, "tokenizer.ggml.pre"),
        "tokens": tokens,
        "merges": _length(meta, "tokenizer.ggml.merges"),
        "special": {
            name: {"id": number, "text": _token(meta, number, tokens)}
            for name, number in special.items()
            if number is not None
        },
        "add_bos": _plain(meta, "tokenizer.ggml.add_bos_token"),
    }


def _length(meta: Metadata, key: str) -> int:
    if key not in meta:
        return 0
    value = meta[key]
    return len(value) if hasattr(value, "__len__") else 0


def _token(meta: Metadata, number: Any, n_tokens: int) -> str | None:
    if type(number) is not int or not 0 <= number < n_tokens:
        return None
    # A lone surrogate stands for a byte that is not UTF-8; it cannot be printed.
    text = str(meta["tokenizer.ggml.tokens"][number])
    return text.encode("utf-8", "replace").decode()


def _fit(file: GGUFFile, tensor_bytes: int) -> dict[str, Any]:
    """Whether this version runs the model, and the memory it then needs."""
    import psutil

    from octavo import models
    from octavo.errors import OctavoError
    from octavo.kv import formats
    from octavo.kv.state import PAGE_TOKENS, AttentionSpec
    from octavo.plan.planner import DEFAULT_CACHE_FORMAT, DEFAULT_CONTEXT_TOKENS

    memory: dict[str, Any] = {
        "weights_bytes": tensor_bytes,
        "cache_bytes": None,
        "cache_tokens": None,
        "cache_format": DEFAULT_CACHE_FORMAT,
        "available_bytes": psutil.virtual_memory().available,
        "machine_bytes": psutil.virtual_memory().total,
    }
    try:
        config = models.read_config(file.metadata)
    except OctavoError as error:
        return {"runs_here": False, "reason": error.message, "memory": memory}
    n_tokens = min(config.context_length, DEFAULT_CONTEXT_TOKENS)
    n_pages = -(-n_tokens // PAGE_TOKENS)
    memory["cache_tokens"] = n_tokens
    memory["cache_bytes"] = sum(
        n_pages * formats.page_bytes(DEFAULT_CACHE_FORMAT, spec)
        if isinstance(spec, AttentionSpec)
        else spec.n_bytes
        for spec in config.layers
    )
    return {"runs_here": True, "reason": None, "memory": memory}


# Text


def _lines(found: dict[str, Any]) -> list[str]:
    rows = [
        ("file", _file(found)),
        ("architecture", found["architecture"]),
        ("name", found["name"]),
        ("license", found["license"]),
        ("parameters", f"{_count(found['parameters'])}, {found['bits_per_weight']} bits each"),
        *(("types" if i == 0 else "", _type(row)) for i, row in enumerate(found["types"])),
        *_shape_rows(found["shape"]),
        ("draft head", "yes (multi-token prediction)" if found["has_mtp_head"] else "no"),
        *_tokenizer_rows(found["tokenizer"]),
        ("chat template", "yes" if found["has_chat_template"] else "no"),
        *_memory_rows(found),
    ]
    lines = [f"{label:<14} {text}" for label, text in rows if text]
    for row in found.get("tensors", []):
        shape = "x".join(str(axis) for axis in row["shape"])
        lines.append(f"{row['name']:<44} {row['type']:<8} {shape:<20} {_size(row['bytes'])}")
    return [_printable(line) for line in lines]


def _printable(line: str) -> str:
    """Without control characters: names in a file may hold commands for the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def _file(found: dict[str, Any]) -> str:
    parts = f" in {found['files']} files" if found["files"] > 1 else ""
    return f"{found['path']} ({_size(found['bytes'])}{parts}, GGUF v{found['gguf_version']})"


def _type(row: dict[str, Any]) -> str:
    return f"{row['type']:<8} {row['tensors']:>5} tensors  {_size(row['bytes']):>9}"


def _shape_rows(shape: dict[str, Any]) -> list[tuple[str, str]]:
    experts = f"{shape['experts']}, {shape['experts_used']} used" if shape["experts"] else ""
    heads = f"{_some(shape['heads'])}, {_some(shape['kv_heads'])} for keys and values"
    return [
        ("context", f"{_some(shape['context_length'])} tokens" if shape["context_length"] else ""),
        ("layers", _some(shape["layers"])),
        ("width", _some(shape["embedding_length"])),
        ("heads", heads if shape["heads"] else ""),
        ("experts", experts),
    ]


def _some(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(str(item) for item in sorted(set(value)))
    return f"{value:,}" if type(value) is int else str(value or "")


def _tokenizer_rows(tokenizer: dict[str, Any] | None) -> list[tuple[str, str]]:
    if tokenizer is None:
        return [("tokenizer", "none in the file")]
    kind = "/".join(_some(part) for part in (tokenizer["model"], tokenizer["pre"]) if part)
    special = ", ".join(
        f"{name} {token['id']} {token['text']!r}" for name, token in tokenizer["special"].items()
    )
    merges = f", {tokenizer['merges']:,} merges" if tokenizer["merges"] else ""
    return [
        ("tokenizer", f"{kind}, {tokenizer['tokens']:,} tokens{merges}"),
        ("special", special),
    ]


def _memory_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    memory = found["memory"]
    here = (
        f"this computer has {_size(memory['machine_bytes'])}, "
        f"{_size(memory['available_bytes'])} available"
    )
    weights = f"{_size(memory['weights_bytes'])} weights"
    if not found["runs_here"]:
        return [("memory", f"{weights}; {here}"), ("runs", f"no: {found['reason']}")]
    total = memory["weights_bytes"] + memory["cache_bytes"]
    cache = f"{_size(memory['cache_bytes'])} {memory['cache_format']} cache of "
    cache += f"{memory['cache_tokens']:,}"
    fits = "fits" if total <= memory["available_bytes"] else "does not fit now"
    return [("memory", f"{_size(total)} = {weights} + {cache} tokens; {fits}: {here}")]


def _count(n: int) -> str:
    for size, unit in ((10**9, "billion"), (10**6, "million")):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n:,}"


def _size(n_bytes: int) -> str:
    """Decimal units, as disks and downloads count."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} B"
