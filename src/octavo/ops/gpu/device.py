"""The device that kernels run on: which one, what it can do, and memory on it.

Kernels are launched as `kernel[grid](...)`: Triton takes torch's current device and stream, so a
launch inside `graph.capture` becomes a node of the graph. With TRITON_INTERPRET=1 Triton runs
kernels in Python and the "device" is the CPU: slow, and enough to check what they compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from octavo.errors import MemoryPlanError, SettingError

Tensor = Any  # torch.Tensor; torch has no types that this package depends on

DTYPES: dict[type, Any] = {np.float32: torch.float32, np.uint8: torch.uint8, np.int32: torch.int32}


@triton.jit
def _probe() -> None:
    pass


IS_INTERPRETED = not isinstance(_probe, triton.runtime.JITFunction)


@dataclass(frozen=True)
class Device:
    """What launches are planned with."""

    torch_device: Any  # torch.device
    name: str
    arch: int  # NVIDIA compute capability, 75, 89, 90 ...; 0: the interpreter, or AMD
    is_amd: bool
    n_processors: int  # streaming multiprocessors or compute units
    memory_bytes: int  # 0: the interpreter
    shared_bytes: int  # most shared memory of one program


@cache
def find() -> Device:
    """The device in use: the first that torch sees.

    Raises:
        SettingError: there is none that torch can use.
    """
    if IS_INTERPRETED:
        return Device(torch.device("cpu"), "Triton's interpreter", 0, False, 8, 0, 65536)
    if not torch.cuda.is_available():
        has_build = torch.version.cuda or torch.version.hip
        reason = "torch finds no device" if has_build else "this torch is a build for the CPU"
        raise SettingError(
            f"There is no GPU to use: {reason}",
            "Check the driver with nvidia-smi and install torch with CUDA, or use --device cpu.",
        )
    torch.cuda.init()
    p = torch.cuda.get_device_properties(0)
    is_amd = torch.version.hip is not None
    arch = 0 if is_amd else 10 * p.major + p.minor
    if not is_amd and arch < 75:
        raise SettingError(
            f"{p.name} has compute capability {p.major}.{p.minor}, 7.5 or more is needed",
            "Use --device cpu.",
        )
    shared = getattr(p, "shared_memory_per_block_optin", 65536)
    return Device(
        torch.device("cuda", 0),
        p.name,
        arch,
        is_amd,
        p.multi_processor_count,
        p.total_memory,
        shared,
    )


def empty(*shape: int, dtype: Any = torch.float32) -> Tensor:
    """An uninitialised tensor on the device."""
    return torch.empty(shape, dtype=dtype, device=find().torch_device)


def alloc(shape: tuple[int, ...], dtype: type) -> Tensor:
    """Zeros on the device that stay allocated: caches. `dtype` is NumPy's.

    Raises:
        MemoryPlanError: the device has not enough free memory.
    """
    try:
        return torch.zeros(shape, dtype=DTYPES[dtype], device=find().torch_device)
    except torch.OutOfMemoryError as error:
        raise out_of_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize) from error


def allocate(n_bytes: int) -> Tensor:
    """Uninitialised bytes (n,) that stay allocated.

    Raises:
        MemoryPlanError: the device has not enough free memory.
    """
    try:
        return empty(n_bytes, dtype=torch.uint8)
    except torch.OutOfMemoryError as error:
        raise out_of_memory(n_bytes) from error


def limit_memory(n_bytes: int) -> None:
    """Refuse to allocate more than that from now on, as a smaller card would.

    CUDA's own context comes on top.
    """
    if not IS_INTERPRETED:
        share = n_bytes / find().memory_bytes
        torch.cuda.set_per_process_memory_fraction(min(max(share, 0.0), 1.0))


def room_bytes(limit_bytes: int, free_bytes: int) -> int | None:
    """What may still be taken, of `limit_bytes` in all, where `free_bytes` were free at first.

    CUDA's context, with the kernels in it, is counted as it is. From now on more is refused. None:
    there is no device that could tell.
    """
    if IS_INTERPRETED:
        return None
    synchronise()
    room = limit_bytes - (free_bytes - int(torch.cuda.mem_get_info()[0]))
    limit_memory(torch.cuda.memory_reserved() + max(0, room))
    return room


def held_bytes() -> int | None:
    """What this program holds on the device, CUDA's context left out; None: there is none."""
    return None if IS_INTERPRETED else int(torch.cuda.memory_reserved())


def out_of_memory(n_bytes: int) -> MemoryPlanError:
    """What to say when `n_bytes` could not be allocated."""
    free, total = torch.cuda.mem_get_info()
    return MemoryPlanError(
        f"{find().name} has no {n_bytes:,} bytes more: {free:,} of {total:,} bytes are free",
        "Close other programs that use the card, ask for a smaller context or a smaller file, "
        "or use --device cpu.",
    )


def pinned(n: int, dtype: Any) -> Tensor:
    """An uninitialised host tensor (n,) that the device copies from and to by itself."""
    return torch.empty(n, dtype=dtype, pin_memory=not IS_INTERPRETED)


def to_device(array: NDArray[Any]) -> Tensor:
    """A copy of a NumPy array on the device; waits for it."""
    return torch.from_numpy(np.array(array, order="C")).to(find().torch_device)


def to_host(tensor: Tensor) -> NDArray[Any]:
    """A copy of a tensor as a NumPy array; waits for what computes it."""
    found: NDArray[Any] = tensor.detach().cpu().numpy()
    return found.copy() if IS_INTERPRETED else found


def synchronise() -> None:
    """Wait until everything that was launched in this thread's stream is done."""
    if not IS_INTERPRETED:
        torch.cuda.current_stream().synchronize()


def is_capturing() -> bool:
    """Whether launches are being recorded instead of run."""
    return not IS_INTERPRETED and bool(torch.cuda.is_current_stream_capturing())
