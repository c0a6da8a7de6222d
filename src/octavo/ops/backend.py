"""What a back end is: a module with these functions. `octavo.ops` says what each does.

A module satisfies the protocol by having the functions, which mypy checks where a back end is
handed to a weight or a cache layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from octavo.kv.batch import Batch
    from octavo.kv.layers import AttentionLayer, RecurrentLayer
    from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight

Array = NDArray[np.float32]
Ids = NDArray[np.int32]
Result = TypeVar("Result")
Held = TypeVar("Held", covariant=True)


class Captured(Protocol[Held]):
    """A recorded step: `result` is what it returned; `replay` computes it again in place.

    `meanwhile` is called when the processor has nothing left to compute of it; a card may have.
    """

    @property
    def result(self) -> Held: ...

    def replay(self, meanwhile: Callable[[], None] | None = None) -> None: ...


class Memory(Protocol):
    """The part of a back end that says where arrays are. In main memory most do nothing."""

    def alloc(self, shape: tuple[int, ...], dtype: type, /) -> NDArray[Any]:
        """Zeros where the back end computes, for caches. `dtype` is NumPy's.

        Raises:
            MemoryPlanError, MemoryError: there is not so much memory.
        """
        ...

    def host(self, shape: tuple[int, ...], dtype: type, /) -> NDArray[Any]:
        """Zeros in main memory from which `send` is fast."""
        ...

    def send(self, array: NDArray[Any], /) -> NDArray[Any]:
        """An array of main memory, where the back end computes; in a recorded step, its new
        contents at each replay."""
        ...

    def fetch(self, array: NDArray[Any], /) -> NDArray[Any]:
        """A result in main memory; in a recorded step, every replay overwrites it."""
        ...

    def store(self, array: NDArray[Any], values: NDArray[Any], /) -> None:
        """Write values (in main memory, of the array's shape) to where the array is."""
        ...

    def place(self, weights: Sequence[Weight], progress: Callable[[int, int], None], /) -> None:
        """Bring weights to where they are used; `progress` gets bytes done and bytes in all.

        Raises:
            MemoryPlanError: they do not fit.
        """
        ...

    def leave(self, weights: Sequence[Weight], /) -> None:
        """Let weights stay in main memory, to be read there: tables of which few rows are needed.

        Raises:
            MemoryPlanError: they have to be brought where they are used, and do not fit.
        """
        ...


class Backend(Memory, Protocol):
    """The functions of `ops.reference`, `ops.cpu` and `ops.gpu`."""

    def embed(self, table: Weight, ids: Ids, scale: float = 1.0, /) -> Array: ...

    def norm(
        self, x: Array, w: Weight, eps: float, residual: Array | None = None, /
    ) -> Array | tuple[Array, Array]: ...

    def linear(self, x: Array, weights: tuple[Weight, ...], /) -> tuple[Array, ...]: ...

    def rope(
        self,
        q: Array,
        k: Array,
        positions: Ids,
        table: RopeTable,
        norms: tuple[Weight, Weight] | None = None,
        eps: float = 0.0,
        /,
    ) -> tuple[Array, Array]: ...

    def attend(
        self,
        q: Array,
        k: Array,
        v: Array,
        layer: AttentionLayer,
        batch: Batch,
        gate: Array | None = None,
        /,
    ) -> Array: ...

    def recur(
        self,
        qkv: Array,
        z: Array,
        alpha: Array,
        beta: Array,
        w: RecurWeights,
        layer: RecurrentLayer,
        batch: Batch,
        /,
    ) -> Array: ...

    def route(self, x: Array, gate: Weight, rule: RouteRule, /) -> tuple[Ids, Array]: ...

    def experts(
        self,
        x: Array,
        bank: ExpertBank,
        ids: Ids,
        weights: Array,
        beside: Callable[[], Array] | None = None,
        /,
    ) -> Array: ...

    def glu(
        self,
        x: Array,
        gate: Weight,
        up: Weight,
        down: Weight,
        kind: str,
        scale: Weight | None = None,
        /,
    ) -> Array: ...

    def add(self, x: Array, y: Array, /) -> Array: ...

    def concat(self, x: Array, y: Array, /) -> Array: ...

    def take(self, x: Array, rows: Ids, /) -> Array: ...

    def softcap(self, x: Array, cap: float, /) -> Array: ...

    def capture(self, step: Callable[[], Result], /) -> Captured[Result]: ...
