"""
The native core: kernels for this processor, threads, recorded programs.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def levels() -> list[str]:
    """Instruction-set levels that this processor runs, best last."""

def level() -> str:
    """The level in force."""

def use_level(name: str) -> None:
    """Use another level; weights and programs made before keep theirs."""

def formats() -> list[str]:
    """Block formats with kernels, at the level in force."""

def cache_formats() -> list[str]:
    """Cache formats with kernels; `attend` takes an index into this list."""

def empty_floats(shape: Sequence[int]) -> NDArray[numpy.float32]:
    """An uninitialised float32 array."""

def empty_ids(shape: Sequence[int]) -> NDArray[numpy.int32]:
    """An uninitialised int32 array."""

def trim() -> None:
    """Free all buffers that are not in use."""

class Strings:
    """Strings in a row: i is text[starts[i]+gap:starts[i+1]]."""

    def __init__(self, text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], gap: int) -> None: ...

class BytePairMerger:
    """Words to ids by ranked merges."""

    def __init__(self, tokens: Strings, merges: Strings, letters: Strings, whole_words: bool) -> None: ...

    def encode(self, words: list[str]) -> list[int]:
        """Ids of the words, one after the other."""

class ScoreMerger:
    """Text to ids by the scores of tokens."""

    def __init__(self, tokens: Strings, ranks: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], byte_ids: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)]) -> None: ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which spaces are U+2581."""

class Pool:
    """Worker threads."""

    def __init__(self, n_threads: int) -> None: ...

    @property
    def n_threads(self) -> int: ...

class Weight:
    """A matrix of native block bytes."""

    def __init__(self, data: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], format: str, n_rows: int, n_columns: int) -> None: ...

class RecurShape:
    """The shape of a gated delta-rule layer."""

    def __init__(self, n_key_heads: int, n_value_heads: int, key_dim: int, value_dim: int, conv_kernel: int, tiled: bool) -> None: ...

class Program:
    """Operations in order; arrays must outlive it."""

    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    def empty_floats(self, shape: Sequence[int]) -> NDArray[numpy.float32]:
        """An uninitialised float32 array; operations added after its end reuse it."""

    def empty_ids(self, shape: Sequence[int]) -> NDArray[numpy.int32]:
        """The same for int32."""

    def owns(self, x: Annotated[NDArray[numpy.generic], dict(device='cpu', writable=False)]) -> bool:
        """Whether the array lies in memory of the program."""

    def run(self, pool: Pool) -> None: ...

    def run_from(self, pool: Pool, first: int) -> None: ...

    def embed(self, table: Weight, ids: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], scale: float, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def norm(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], eps: float, residual: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None, sum: Annotated[NDArray[numpy.float32], dict(device='cpu')] | None, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def linear(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], weights: Sequence[Weight], biases: Sequence[Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None], outs: Sequence[Annotated[NDArray[numpy.float32], dict(device='cpu')]]) -> None: ...

    def rope(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], frequencies: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], adjacent: bool, magnitude: float, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def attend(self, q: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], cache: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu')], format: int, scale: float, window: int, starts: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], n_past: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], pages: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], state_slots: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], gate: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def recur(self, qkv: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], z: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], alpha: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], beta: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], conv_weight: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], a: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], dt: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], norm: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], eps: float, shape: RecurShape, conv: Annotated[NDArray[numpy.float32], dict(device='cpu')], state: Annotated[NDArray[numpy.float32], dict(device='cpu')], starts: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], n_past: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], pages: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], state_slots: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def route(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], gate: Weight, n_used: int, sigmoid: bool, normalise: bool, scale: float, ids: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu')], weights: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def glu(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], gate: Weight, up: Weight, down: Weight, kind: str, scale: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def experts(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], gate: Weight, up: Weight | None, down: Weight, n_experts: int, kind: str, ids: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def add(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def concat(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def take(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def softcap(self, x: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], cap: float, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None: ...

    def read_memory(self, data: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], sink: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu')]) -> None:
        """Read `data` (whole MiB) once; `sink` holds 8 bytes a MiB."""

    def dot_peak(self, n_rounds: int, sink: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> float:
        """
        Int8 dot products, one chunk an entry of `sink`; returns the operations.
        """

    def fma_peak(self, n_rounds: int, sink: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> float:
        """
        Float multiply-adds, one chunk an entry of `sink`; returns the operations.
        """

class Companion:
    """The processor's half of a card's step."""

    def __init__(self, bell: Annotated[NDArray[numpy.uint32], dict(order='C', device='cpu')], reply: Annotated[NDArray[numpy.uint32], dict(order='C', device='cpu')]) -> None: ...

    def __len__(self) -> int: ...

    @property
    def waited(self) -> float:
        """Seconds of waiting for bells since the start."""

    @property
    def computed(self) -> float:
        """Seconds of computing since the start."""

    @property
    def n_missed(self) -> int:
        """Experts computed, once for each token."""

    def add(self, program: Program, missed: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu')], n_experts: int, out: Annotated[NDArray[numpy.float32], dict(device='cpu')]) -> None:
        """Another layer; arrays and program must outlive it."""

    def run(self, pool: Pool, first: int, seconds: float) -> int:
        """Answer from a layer on; fewer than all: no bell for so many seconds."""
