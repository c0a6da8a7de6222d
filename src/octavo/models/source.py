"""Where a model's weights come from: a file's tensors, checked against the shapes expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo import quants
from octavo.errors import FileFormatError
from octavo.gguf.header import TensorInfo
from octavo.ops.backend import Backend
from octavo.ops.weight import Weight


class WeightSource(Protocol):
    """Gives weights by their GGUF name. `backend` is where small tables of a model belong."""

    backend: Backend

    def __call__(self, name: str, shape: tuple[int, ...]) -> Weight:
        """The weight `name`, with its bias if there is one.

        Raises:
            FileFormatError: it is missing, or has another shape.
        """
        ...

    def optional(self, name: str, shape: tuple[int, ...]) -> Weight | None:
        """As a call, or None where the file has no such tensor."""
        ...


class TensorFile(Protocol):
    """What is needed of `octavo.gguf.reader.GGUFFile`."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def data(self, name: str) -> NDArray[np.uint8]: ...


class FileWeights:
    """The weights of an open file, all on one back end. `NAME.bias` joins `NAME.weight`.

    A name asked for twice gives the same object, so that a tied head is not held twice.
    """

    def __init__(self, file: TensorFile, backend: Backend) -> None:
        self.backend = backend
        self._file = file
        self._made: dict[str, Weight] = {}

    @property
    def made(self) -> list[Weight]:
        """Every weight that was asked for, in the order of the file."""
        order = {name: i for i, name in enumerate(self._file.tensors)}
        return sorted(self._made.values(), key=lambda w: order[w.name])

    def __call__(self, name: str, shape: tuple[int, ...]) -> Weight:
        found = self.optional(name, shape)
        if found is None:
            raise FileFormatError(
                f"The file lacks the tensor {name!r}",
                "It is incomplete, or of another architecture than it says.",
            )
        return found

    def optional(self, name: str, shape: tuple[int, ...]) -> Weight | None:
        if name not in self._file.tensors:
            return None
        if name not in self._made:
            self._made[name] = self._make(name)
        found = self._made[name]
        check_shape(found, shape)
        return found

    def _make(self, name: str) -> Weight:
        info = self._file.tensors[name]
        bias = None
        if name.endswith(".weight"):
            bias = self.optional(name.removesuffix("weight") + "bias", info.shape[:1])
        return Weight(
            name=name,
            format=info.type_name,
            shape=info.shape,
            data=self._file.data(name),
            backend=self.backend,
            bias=None if bias is None else as_floats(bias),
        )


def check_shape(weight: Weight, shape: tuple[int, ...]) -> None:
    """Compare with what the configuration asks for.

    Raises:
        FileFormatError: they differ; names tensor, found and expected.
    """
    if weight.shape != shape:
        raise FileFormatError(
            f"Tensor {weight.name!r} has the shape {weight.shape}, expected {shape}",
            "The file's metadata and tensors do not belong together.",
        )


def as_floats(weight: Weight) -> Weight:
    """The same values as float32: for norms, biases and other small tensors."""
    if weight.format == "f32":
        return weight
    values = quants.unpack(weight.format, weight.data, weight.shape)
    return Weight(
        weight.name, "f32", weight.shape, values.reshape(-1).view(np.uint8), weight.backend
    )


def take_rows(weight: Weight, rows: NDArray[np.intp], name: str) -> Weight:
    """Rows of a matrix as a weight of their own, in any format: a row is whole blocks."""
    data = weight.data.reshape(weight.shape[0], -1)[rows]
    shape = (len(rows), *weight.shape[1:])
    return Weight(name, weight.format, shape, data.reshape(-1), weight.backend)
