"""Opening GGUF files: one file, a set of shards, or the folder they lie in.

The file is mapped, not read: opening costs the header, and `data` gives views of the mapped
bytes. Nobody may shorten the file while it is open.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType

import numpy as np

from octavo.errors import FileFormatError, NotFoundError
from octavo.gguf.header import FETCH_AGAIN, MAX_TENSORS, Header, TensorInfo, read_header
from octavo.gguf.meta import Metadata
from octavo.gguf.shards import model_in_folder, shard_paths
from octavo.gguf.sniff import SNIFF_BYTES, check_start

_MAX_SHARDS = 10_000


class GGUFFile:
    """An open model. Read-only; may be used by several threads.

    `path` is the first file; `shards` all of them; `metadata` that of the first; `tensors` those
    of all, in file order; `n_bytes` the size of all files together. Without `maps` only the
    header is here.
    """

    def __init__(self, shards: list[Path], maps: list[mmap.mmap], headers: list[Header]) -> None:
        self.path = shards[0]
        self.shards = tuple(shards)
        self.version = headers[0].version
        self.n_bytes = sum(header.n_bytes for header in headers)
        self.metadata = Metadata(headers[0].entries)
        self.tensors: dict[str, TensorInfo] = {}
        self._maps = maps
        for header in headers:
            for tensor in header.tensors:
                if tensor.name in self.tensors:
                    raise FileFormatError(
                        f"Tensor {tensor.name!r} is in two parts of {self.path.name}",
                        "The parts are from different files. Fetch the whole set again.",
                    )
                self.tensors[tensor.name] = tensor

    def data(self, name: str) -> np.ndarray:
        """The bytes of a tensor, (n_bytes,) uint8, a read-only view of the mapped file.

        Raises:
            FileFormatError: the file has no such tensor.
        """
        tensor = self.tensors.get(name)
        if tensor is None:
            raise FileFormatError(
                f"{self.path.name} has no tensor {name!r}",
                "The file is incomplete or of another architecture than it says.",
            )
        if not self._maps:
            raise FileFormatError(f"Only the header of {self.path.name} is here, not its tensors")
        return np.frombuffer(self._maps[tensor.shard], np.uint8, tensor.n_bytes, tensor.offset)

    def close(self) -> None:
        """Let go of the files. Arrays that are still in use keep their mapping until they die."""
        self._maps = []
        self.tensors = {}
        self.metadata = Metadata({})

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_gguf(path: str | Path) -> GGUFFile:
    """Open the model at `path`: a file, any shard of a set, or a folder with one model.

    Raises:
        NotFoundError: no such file, no model in the folder, or several.
        FileFormatError: not a GGUF file, truncated, damaged, or a shard is missing.
        UnsupportedError: a GGUF version, byte order or tensor type this version cannot read.
    """
    first = Path(path)
    if first.is_dir():
        first = model_in_folder(first)
    data, header = _open_one(first, 0)
    count = _split_number(header, "split.count", 1)
    if count <= 1:
        return GGUFFile([first], [data], [header])
    paths = shard_paths(first, count)
    opened = [_open_one(each, i) for i, each in enumerate(paths)]
    _check_set(paths, [header for _, header in opened])
    return GGUFFile(paths, [data for data, _ in opened], [header for _, header in opened])


def check_file(path: Path) -> None:
    """Read the header of one file, a shard or not, and check that its tensors are inside.

    Raises:
        FileFormatError, UnsupportedError, NotFoundError: as `open_gguf`.
    """
    _open_one(path, 0)


def _open_one(path: Path, shard: int) -> tuple[mmap.mmap, Header]:
    try:
        with path.open("rb") as file:
            head = file.read(SNIFF_BYTES)
            n_bytes = file.seek(0, 2)
            check_start(head, n_bytes, path.name)
            data = mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise NotFoundError(
            f"There is no file {path}", "Check the path, or fetch a model: octavo pull demo"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotFoundError(
            f"{path} cannot be read: {reason}", "Check that you may read it and that the disk works"
        ) from error
    return data, read_header(data, n_bytes, path.name, shard)


def _split_number(header: Header, key: str, default: int, most: int = _MAX_SHARDS) -> int:
    if key not in header.entries:
        return default
    value = Metadata(header.entries).get(key, int)
    if not 0 <= value <= most:
        raise FileFormatError(
            f"The metadata key {key!r} is {value}, expected 0 to {most:,}", FETCH_AGAIN
        )
    return value


def _check_set(paths: list[Path], headers: list[Header]) -> None:
    """Every shard must say the place that its name says, and all tensors must be there."""
    for i, (path, header) in enumerate(zip(paths, headers, strict=True)):
        number = _split_number(header, "split.no", -1)
        if number != i or _split_number(header, "split.count", 0) != len(paths):
            raise FileFormatError(
                f"{path.name} is not part {i + 1} of {len(paths)}, as its name says",
                "The file was renamed or is from another set. Fetch the whole set again.",
            )
    expected = _split_number(headers[0], "split.tensors.count", -1, MAX_TENSORS)
    found = sum(len(header.tensors) for header in headers)
    if expected not in (-1, found):
        raise FileFormatError(
            f"The parts of {paths[0].name} hold {found} tensors, expected {expected}",
            "The parts are from different files. Fetch the whole set again.",
        )
