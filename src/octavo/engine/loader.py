"""From a file and its plan to a model: weights are read into memory of our own, or mapped.

Mapped: the model is ready at once; a thread asks the system to fetch the file in its order, which
a disk does many times faster than in the order in which a model touches it.

Reading: every tensor gets a place on a cache line in one block of huge-page memory, and two
threads fill it in the order of the file. The system keeps the file's pages too, as long as it has
room, so a second start copies from memory and is limited by that, not by the disk.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from octavo import arena, models
from octavo.errors import FileFormatError, MemoryPlanError, SettingError
from octavo.gguf.header import TensorInfo
from octavo.gguf.reader import GGUFFile, open_gguf
from octavo.models.source import TensorFile
from octavo.ops.backend import Backend
from octavo.plan.memory import stays, text
from octavo.plan.plan import Plan
from octavo.record import dataclass
from octavo.settings import Settings

if TYPE_CHECKING:
    from octavo.experts.residents import Residents, Store

Progress = Callable[[int, int], None]  # (bytes done, bytes in all), from any thread

ALIGNMENT_BYTES = 64  # a cache line, and the widest vector
# Large ones begin on a page: memory is pinned for a card in whole pages, no page twice.
LARGE_BYTES, PAGE_BYTES = 1 << 16, 4096
_CHUNK_BYTES = 16 << 20
_CHUNK_PLACES = 512  # systems take 1024 in one call
_THREADS = 2  # one waits for the disk or copies while the other does; more gained nothing
_SAMPLES = 64
_SAMPLE_BYTES = 4096


def load_model(
    source: str | Path | GGUFFile,
    plan: Plan,
    backend: Backend,
    progress: Progress | None = None,
) -> models.Model:
    """The model of a file, its weights where the plan says.

    An open file stays the caller's to close, at any time: mapped weights keep the mapping.

    Raises:
        NotFoundError, FileFormatError, UnsupportedError: as `open_gguf` and `models.build`; or
            the file changed while it was read.
        MemoryPlanError: the system gave less memory than the plan counted on.
    """
    if not isinstance(source, GGUFFile):
        with open_gguf(source) as file:
            return load_model(file, plan, backend, progress)
    report = progress or _silent
    tensors: TensorFile = source
    is_left = _stays(source, plan)
    if plan.weights == "read":
        tensors = read_tensors(source, report, is_left)
    else:
        if plan.fits:
            threading.Thread(target=_fetch_ahead, args=(source.shards,), daemon=True).start()
        report(plan.file_bytes, plan.file_bytes)
    weights = models.FileWeights(tensors, backend)
    model = models.build(source.metadata, weights)
    backend.place([w for w in weights.made if not is_left(w.name)], report)
    backend.leave([w for w in weights.made if is_left(w.name) and w.name == "token_embd.weight"])
    return model


def split_experts(model: models.Model, plan: Plan, backend: Backend) -> Store | None:
    """The experts of a split in main memory, and the way to the card; None: they are in one place.

    Raises:
        MemoryPlanError: the card has not the memory that the plan counted on.
        UnsupportedError: the processor has no kernel for a format of theirs.
        SettingError: the back end has no such thing.
    """
    if plan.placement != "split" or plan.video is None:
        return None
    video = plan.video
    split: Callable[..., Store] | None = getattr(backend, "Split", None)
    if split is None:
        raise SettingError("This back end cannot split experts", "Use --device gpu or cpu.")
    banks = model.banks()[: video.n_blocks]
    return split(banks, video.ring_bytes, video.pinned_bytes, not video.experts_stay)


def hold_experts(store: Store, plan: Plan, model: str) -> Residents:
    """Make the pool of what the card has left, when all else has been allocated, and fill it.

    `model`: its fingerprint.

    Raises:
        MemoryPlanError: that is too little.
    """
    from octavo.experts.heat import heat_path  # here, as few models are split
    from octavo.experts.pool import Rules
    from octavo.experts.residents import SLOW, STILL, Residents

    video = plan.video
    assert video is not None
    room = store.room_bytes(video.limit_bytes, video.total_bytes - video.other_bytes)
    most = video.n_blocks * video.n_experts * video.slot_bytes
    n_bytes = video.pool_bytes if room is None else min(most, room - video.slack_bytes)
    if n_bytes < video.least_slots * video.slot_bytes:
        raise MemoryPlanError(
            f"{text(max(0, n_bytes))} of video memory are left for experts, too few to gain by it",
            "Close other programs that use the card, ask for a smaller context or batch, "
            "or use --device cpu.",
        )
    store.make_pool(n_bytes)
    floor = video.least_slots // video.n_blocks
    if video.experts_stay:
        residents = Residents(store, floor=floor, rules=STILL)
    else:
        is_pinned = video.pinned_bytes >= video.left_bytes.get("experts", 0)
        rules = Rules() if is_pinned else SLOW
        heat_file = heat_path(Settings.from_environment(), model)
        residents = Residents(store, floor=floor, rules=rules, heat_file=heat_file)
    residents.fill()
    return residents


def _stays(file: GGUFFile, plan: Plan) -> Callable[[str], bool]:
    """Whether a tensor has its place in main memory, by its name."""
    if plan.video is None or plan.placement == "cpu":
        return lambda name: True
    n_layers = models.read_config(file.metadata).n_layers
    left, drafts = plan.video.left_bytes, plan.draft_tokens > 0
    return lambda name: stays(name, n_layers, left, drafts=drafts)


def fingerprint(file: GGUFFile) -> str:
    """Names a model's bytes, without reading all of them: for what is bound to a model.

    Covers the architecture, the tensor table and samples of up to 64 tensors.
    """
    import hashlib  # here, so that the weights are on their way before

    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{file.metadata.architecture} {file.n_bytes}".encode())
    tensors = sorted(file.tensors.values(), key=_place)
    for tensor in tensors:
        row = f"{tensor.name} {tensor.shape} {tensor.type_name} {tensor.shard} {tensor.offset}"
        digest.update(row.encode())
    for tensor in tensors[:: -(-len(tensors) // _SAMPLES) or 1]:
        digest.update(file.data(tensor.name)[:_SAMPLE_BYTES].data)
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class TensorsInMemory:
    """Tensors that were read, and while the file is open those that stayed there."""

    file: GGUFFile
    tensors: Mapping[str, TensorInfo]
    starts: Mapping[str, int]
    memory: NDArray[np.uint8]

    def data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, (n_bytes,) uint8, 64-byte aligned if it was read."""
        if name not in self.starts:
            return self.file.data(name)
        start = self.starts[name]
        return self.memory[start : start + self.tensors[name].n_bytes]


def read_tensors(
    file: GGUFFile, progress: Progress, wanted: Callable[[str], bool] = lambda name: True
) -> TensorsInMemory:
    """Read every tensor whose name is wanted; the others stay in the file.

    Raises:
        FileFormatError: the file has become shorter since it was opened, or cannot be read.
        MemoryPlanError: there is not enough memory.
    """
    tensors = [t for t in sorted(file.tensors.values(), key=_place) if wanted(t.name)]
    starts, n_bytes = {}, 0
    for tensor in tensors:
        n_bytes += -n_bytes % (PAGE_BYTES if tensor.n_bytes >= LARGE_BYTES else ALIGNMENT_BYTES)
        starts[tensor.name] = n_bytes
        n_bytes += tensor.n_bytes
    try:
        memory = arena.allocate(n_bytes)
    except MemoryError as error:
        raise MemoryPlanError(
            f"The system has no {text(n_bytes)} for the weights of {file.path.name}",
            "Close other programs, or plan again: the weights can be mapped instead.",
        ) from error
    chunks = list(_chunks(tensors, starts))
    reading = _Reading(file.shards, memory, sum(t.n_bytes for t in tensors), progress)
    with ThreadPoolExecutor(_THREADS, "octavo-read") as pool:
        for _ in pool.map(reading.run, (chunks[i::_THREADS] for i in range(_THREADS))):
            pass
    return TensorsInMemory(file, dict(file.tensors), starts, memory)


class _Chunk:
    """Bytes in a row in a file, and the places in memory that they go to, one after the other."""

    def __init__(self, shard: int, offset: int) -> None:
        self.shard = shard
        self.offset = offset
        self.n_bytes = 0
        self.places: list[tuple[int, int]] = []  # (start, bytes)

    def takes(self, shard: int, offset: int) -> bool:
        """Whether bytes of the file go on from here."""
        is_next = (shard, offset) == (self.shard, self.offset + self.n_bytes)
        return is_next and self.n_bytes < _CHUNK_BYTES and len(self.places) < _CHUNK_PLACES

    def add(self, start: int, n_bytes: int) -> None:
        self.places.append((start, n_bytes))
        self.n_bytes += n_bytes


def _chunks(tensors: list[TensorInfo], starts: Mapping[str, int]) -> Iterator[_Chunk]:
    """Many tensors a chunk: the threads do not come back to Python, and wait for it, for each."""
    chunk = None
    for tensor in tensors:
        for done in range(0, tensor.n_bytes, _CHUNK_BYTES):
            offset = tensor.offset + done
            if chunk is None or not chunk.takes(tensor.shard, offset):
                if chunk is not None:
                    yield chunk
                chunk = _Chunk(tensor.shard, offset)
            chunk.add(starts[tensor.name] + done, min(_CHUNK_BYTES, tensor.n_bytes - done))
    if chunk is not None:
        yield chunk


class _Reading:
    """What the reading threads share."""

    def __init__(
        self, paths: tuple[Path, ...], memory: NDArray[np.uint8], n_bytes: int, progress: Progress
    ) -> None:
        self._paths = paths
        self._memory = memory.data
        self._n_bytes = n_bytes
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()
        self._failed = threading.Event()

    def run(self, chunks: list[_Chunk]) -> None:
        """Read these; one thread's share. Stops early once another thread has failed."""
        files: dict[int, BinaryIO] = {}
        try:
            for chunk in chunks:
                if self._failed.is_set():
                    return
                if chunk.shard not in files:
                    files[chunk.shard] = self._paths[chunk.shard].open("rb", buffering=0)
                self._read(files[chunk.shard], chunk)
        except BaseException:
            self._failed.set()
            raise
        finally:
            for file in files.values():
                file.close()

    def _read(self, file: BinaryIO, chunk: _Chunk) -> None:
        places = [self._memory[start : start + n] for start, n in chunk.places]
        offset = chunk.offset
        while places:
            n = _read_into(file, offset, places)
            if not n:
                raise FileFormatError(
                    f"{self._paths[chunk.shard].name} became shorter while it was read",
                    "Do not change a model file while it is in use; fetch it again.",
                )
            offset += n
            places = _left(places, n)
        with self._lock:
            self._done += chunk.n_bytes
            self._progress(self._done, self._n_bytes)


def _read_into(file: BinaryIO, offset: int, places: list[memoryview]) -> int:
    """Read from there on into some of the places. -> bytes; 0: the file has ended."""
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), places, offset)
    file.seek(offset)  # Windows
    n: int = file.readinto(places[0])  # type: ignore[attr-defined]
    return n


def _left(places: list[memoryview], n_bytes: int) -> list[memoryview]:
    """The places behind the first bytes."""
    for i, place in enumerate(places):
        if n_bytes < len(place):
            return [place[n_bytes:], *places[i + 1 :]]
        n_bytes -= len(place)
    return []


def _fetch_ahead(paths: Sequence[Path]) -> None:
    """Ask for the whole files in the background; harmless where the system cannot or need not."""
    if sys.platform == "win32" or sys.platform == "darwin":
        return
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            for offset in range(0, path.stat().st_size, _CHUNK_BYTES):
                os.posix_fadvise(file.fileno(), offset, _CHUNK_BYTES, os.POSIX_FADV_WILLNEED)


def _place(tensor: TensorInfo) -> tuple[int, int]:
    return tensor.shard, tensor.offset


def _silent(done: int, total: int) -> None:
    """No progress is shown."""
