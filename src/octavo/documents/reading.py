"""Files -> documents, in a process of their own that is ended when it takes too much."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from octavo import errors
from octavo.documents.document import Document, Limits, Page
from octavo.errors import FileFormatError, NotFoundError, OctavoError

_LOOK_SECONDS = 0.02


def read_file(path: Path, limits: Limits | None = None) -> Document:
    """Read a file of this machine. Errors as of `read`, and:

    Raises:
        NotFoundError: there is none, or it may not be read.
    """
    limits = limits or Limits()
    try:
        with path.open("rb") as file:
            data = file.read(limits.max_bytes + 1)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}", "Give a file.") from error
    return read(path.name, data, limits)


def read(name: str, data: bytes, limits: Limits | None = None) -> Document:
    """Read the bytes of a file; its name helps where they do not say what they are.

    Raises:
        UnsupportedError: it is of a kind that is not read, or has no text.
        FileFormatError: it is damaged, or takes more than `limits` allow.
    """
    limits = limits or Limits()
    if len(data) > limits.max_bytes:
        raise FileFormatError(
            f"{name} is larger than {limits.max_bytes >> 20} MiB", "Give a part of it."
        )
    question = json.dumps(question_of(name, limits)).encode()
    return document_of(name, _ask(name, question + b"\n" + data, limits))


def question_of(name: str, limits: Limits) -> dict[str, Any]:
    """What the reading process is told of a file, besides its bytes."""
    return {
        "name": name,
        "max_characters": limits.max_characters,
        "max_pages": limits.max_pages,
    }


def document_of(name: str, answer: dict[str, Any]) -> Document:
    """What the reading process answered. Errors as of `read`."""
    if "error" in answer:
        kind: type[OctavoError] = getattr(errors, answer["error"])
        raise kind(f"{name}: {answer['message']}", answer["hint"])
    pages = tuple(Page(number, text) for number, text in answer["pages"])
    return Document(name, answer["format"], pages, answer["is_cut"])


def _ask(name: str, question: bytes, limits: Limits) -> dict[str, Any]:
    """What the reading process says."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-X", "utf8", "-m", "octavo.documents"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    watch = _Watch(child, limits)
    try:
        answer, _ = child.communicate(question)
    finally:
        child.kill()
        watch.join()
    if watch.why:
        raise FileFormatError(f"{name} {watch.why}", "Give a part of it, or its text.")
    try:
        read: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise FileFormatError(
            f"{name} made the reader fail", "Open it and save it again."
        ) from error
    return read


class _Watch(threading.Thread):
    """Ends the process when it takes more time or memory than it may; `why` says which."""

    def __init__(self, child: subprocess.Popen[bytes], limits: Limits) -> None:
        super().__init__(name="octavo-document", daemon=True)
        self.why = ""
        self._child = child
        self._limits = limits
        self.start()

    def run(self) -> None:
        end = time.monotonic() + self._limits.seconds
        while self._child.poll() is None:
            if time.monotonic() > end:
                self.why = f"takes more than {self._limits.seconds:g} seconds to read"
            elif self._memory_bytes() > self._limits.memory_bytes:
                self.why = f"takes more than {self._limits.memory_bytes >> 20} MiB to read"
            if self.why:
                self._child.kill()
                return
            time.sleep(_LOOK_SECONDS)

    def _memory_bytes(self) -> int:
        try:
            return int(psutil.Process(self._child.pid).memory_info().rss)
        except psutil.Error:  # it has ended in the meantime
            return 0
