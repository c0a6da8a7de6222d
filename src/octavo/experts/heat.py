"""What a model's experts were asked for, kept between runs: one small file a model.

    magic "OCTAHEAT" | version u32 | blocks u32 | experts u32 | CRC-32 u32 of all else
    uses a token, float32 (blocks, experts)

Little-endian. It lies in the cache folder under the model's fingerprint. A file that is damaged or
of another version or shape is as good as none: the pool starts without and writes a new one.
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.settings import Settings

MAGIC = b"OCTAHEAT"
VERSION = 1
_HEAD = struct.Struct("<8sIII")
_CRC = struct.Struct("<I")
OLD_SHARE = 0.5  # of what earlier runs said, when a run ends


def heat_path(settings: Settings, fingerprint: str) -> Path:
    """Where the heat of a model lies; `fingerprint` as from `engine.loader.fingerprint`."""
    return settings.cache_dir / "experts" / f"{fingerprint}.heat"


def save_heat(path: Path, heat: NDArray[np.floating]) -> None:
    """Write (blocks, experts) uses a token. The file appears whole or not at all.

    Raises:
        OSError: the folder cannot be written to.
    """
    data = np.ascontiguousarray(heat, "<f4").tobytes()
    head = _HEAD.pack(MAGIC, VERSION, *heat.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head + _CRC.pack(zlib.crc32(head + data)) + data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_heat(path: Path, n_blocks: int, n_experts: int) -> NDArray[np.float32] | None:
    """(blocks, experts) uses a token; None: there is no sound file of this shape."""
    n_bytes = _HEAD.size + _CRC.size + 4 * n_blocks * n_experts
    try:
        with path.open("rb") as file:
            raw = file.read(n_bytes + 1)
    except OSError:
        return None
    head, data = raw[: _HEAD.size], raw[_HEAD.size + _CRC.size :]
    if len(raw) != n_bytes or head != _HEAD.pack(MAGIC, VERSION, n_blocks, n_experts):
        return None
    if raw[_HEAD.size : _HEAD.size + _CRC.size] != _CRC.pack(zlib.crc32(head + data)):
        return None
    heat = np.frombuffer(data, "<f4").reshape(n_blocks, n_experts).astype(np.float32)
    return heat if np.isfinite(heat).all() and (heat >= 0).all() else None


def merged(before: NDArray[np.floating] | None, now: NDArray[np.floating]) -> NDArray[np.float32]:
    """What to keep after a run: half of it from earlier ones, so that one odd run does not rule."""
    if before is None:
        return now.astype(np.float32)
    return (OLD_SHARE * before + (1 - OLD_SHARE) * now).astype(np.float32)
