"""A saved reference: log-probabilities of one model, to hold others against.

A file is one line of JSON (what was scored) and then rows of the vocabulary's log-probabilities
as 16-bit fixed point: value v stands for -v / 2048, so 32 nats are covered in steps of 0.0005.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.errors import FileFormatError, NotFoundError
from octavo.record import dataclass

STEPS = 2048
MAGIC = "octavo-reference-1"
MAX_HEADER_BYTES = 4096


@dataclass(frozen=True)
class Scored:
    """What a reference was made of; two runs can be compared if these are equal."""

    ids_sha256: str
    context: int
    n_rows: int
    n_vocab: int

    @classmethod
    def of(cls, ids: list[int], context: int, n_rows: int, n_vocab: int) -> Scored:
        digest = hashlib.sha256(np.asarray(ids, "<i4").tobytes()).hexdigest()
        return cls(digest, context, n_rows, n_vocab)


class ReferenceWriter:
    """Writes rows one after another; the file has its name only when `close` has come."""

    def __init__(self, path: Path, scored: Scored) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise NotFoundError(
                f"{path} cannot be written: {error}", "Choose another place."
            ) from error
        header = json.dumps({"format": MAGIC, **asdict(scored)})
        self._file.write(header.encode() + b"\n")

    def add(self, logprobs: NDArray[np.float32]) -> None:
        """Rows (n, V) of natural log-probabilities."""
        steps = np.clip(np.rint(logprobs * -STEPS), 0, 65535)
        self._file.write(steps.astype("<u2").tobytes())

    def close(self) -> None:
        """The file is whole."""
        self._file.close()
        self._part.replace(self._path)


def read_reference(path: Path, scored: Scored) -> NDArray[np.uint16]:
    """The rows (n_rows, V), mapped, not read; `logprobs` turns them into numbers.

    Raises:
        NotFoundError: no such file.
        FileFormatError: another kind of file, or one of another text, context or vocabulary.
    """
    hint = "Make it with --save-reference, of the same text and --context."
    try:
        with path.open("rb") as file:
            line = file.readline(MAX_HEADER_BYTES)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error}", hint) from error
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.pop("format", None) != MAGIC:
        raise FileFormatError(f"{path} is not a reference", hint)
    for name, expected in asdict(scored).items():
        if header.get(name) != expected:
            raise FileFormatError(
                f"{path} was made with {name} {header.get(name)}, this run has {expected}", hint
            )
    shape = scored.n_rows, scored.n_vocab
    if path.stat().st_size != len(line) + 2 * shape[0] * shape[1]:
        raise FileFormatError(f"{path} is cut off", hint)
    return np.memmap(path, "<u2", "r", offset=len(line), shape=shape)


def logprobs(rows: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Rows of a reference as natural log-probabilities.

    Their probabilities sum to 1 again, so that rounding does not look like divergence.
    """
    values = rows.astype(np.float32) / np.float32(-STEPS)
    total = np.exp(values).sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(values - np.log(total), np.float32)
