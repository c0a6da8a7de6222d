"""Graphics cards as the driver's management library (NVML) describes them.

NVML only looks: it makes no CUDA context, so planning takes no video memory. Its Python module,
nvidia-ml-py, comes with the extra `gpu`. Where that is missing, `nvidia-smi`, which comes with the
driver, is asked for the same; it does not know the rates.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import psutil

from octavo.record import dataclass

Value = TypeVar("Value")

# Bytes a second of one PCIe lane after its line code, by generation.
_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# Large copies from pinned memory reach this share: 55.4 of 63 GB/s on generation 5 x16, 13.2 of
# 15.8 on generation 3 x16, 11.8 to 13 of 15.8 on generation 4 x8.
_LINK_SHARE = 0.84
# CUDA's context: 553 MB bare and 829 MB with all kernels in it, on an H200 with driver 580. Taken
# for a fixed part and 1024 bytes, then 2048, of each thread that a card can hold: smaller cards
# were not measured.
_CONTEXT_BYTES = 277 * 10**6
_CONTEXT_BYTES_OF_CORE = 2 * 276 * 10**6 / 16_896
_SOME_CORES = 8_448  # where the driver does not say


@dataclass(frozen=True)
class Program:
    """A program that holds video memory. `n_bytes` None: the driver does not say (Windows)."""

    name: str
    n_bytes: int | None


@dataclass(frozen=True)
class Gpu:
    """One card. Rates are what its clocks and widths allow; 0: not known."""

    name: str
    total_bytes: int
    free_bytes: int
    capability: tuple[int, int] = (0, 0)  # CUDA compute capability: (8, 9) is Ada
    link_generation: int = 0  # of PCIe, the best that card and slot agree on
    link_width: int = 0  # lanes
    read_bytes_per_second: float = 0.0  # of its memory
    float_ops_per_second: float = 0.0  # float32, a multiply-add counts as two
    has_display: bool = False  # a screen hangs on it
    driver: str = ""
    n_cores: int = 0
    programs: tuple[Program, ...] = ()  # the largest first
    rates_origin: str = "by its clocks"

    @property
    def context_bytes(self) -> int:
        """What CUDA takes for itself in a program with all our kernels, about."""
        return _CONTEXT_BYTES + round(_CONTEXT_BYTES_OF_CORE * (self.n_cores or _SOME_CORES))

    @property
    def link_bytes_per_second(self) -> float:
        """What large copies from pinned memory to this card reach."""
        return _LANE_BYTES.get(self.link_generation, 0.0) * self.link_width * _LINK_SHARE


def probe_gpus() -> tuple[Gpu, ...]:
    """The cards of this machine, now; none where no driver answers."""
    return look()[0]


def look() -> tuple[tuple[Gpu, ...], str]:
    """The cards, and why there are none: "" where the driver answered."""
    try:
        import pynvml as nvml
    except ImportError:
        return _by_command()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (), f"the driver does not answer: {error}"
    try:
        driver = _text(_asked(nvml, nvml.nvmlSystemGetDriverVersion, ""))
        n_cards = _asked(nvml, nvml.nvmlDeviceGetCount, 0)
        return tuple(_gpu(nvml, i, driver) for i in range(n_cards)), ""
    except nvml.NVMLError as error:  # a card that fell off the bus
        return (), f"the driver does not answer: {error}"
    finally:
        nvml.nvmlShutdown()


_COLUMNS = (
    "name",
    "memory.total",
    "memory.free",
    "compute_cap",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "display_active",
    "driver_version",
)


def _by_command() -> tuple[tuple[Gpu, ...], str]:
    """As `look`, by nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return (), "neither the Python module nvidia-ml-py nor nvidia-smi is here"
    except (OSError, subprocess.SubprocessError) as error:
        return (), f"nvidia-smi does not answer: {error}"
    if done.returncode:
        return (), f"nvidia-smi does not answer: {(done.stdout or done.stderr).strip()}"
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return tuple(_of_row(row) for row in rows if len(row) == len(_COLUMNS)), ""


def _of_row(row: list[str]) -> Gpu:
    name, total, free, capability, generation, width, display, driver = row
    major, _, minor = capability.partition(".")
    return Gpu(
        name=name,
        total_bytes=_whole(total) << 20,
        free_bytes=_whole(free) << 20,
        capability=(_whole(major), _whole(minor)),
        link_generation=_whole(generation),
        link_width=_whole(width),
        has_display=display == "Enabled",
        driver=driver,
    )


def _whole(words: str) -> int:
    """A whole number; 0 where the driver says [N/A]."""
    return int(words) if words.isdecimal() else 0


def _gpu(nvml: ModuleType, index: int, driver: str) -> Gpu:
    card = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(card)

    def ask(call: str, *arguments: Any) -> int:
        # Older drivers and virtual cards do not know everything.
        return int(_asked(nvml, lambda: getattr(nvml, call)(card, *arguments), 0))

    # GDDR and HBM transfer twice a clock as NVML counts it.
    lanes = ask("nvmlDeviceGetMemoryBusWidth") / 8
    read = lanes * 2e6 * ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM)
    cores = ask("nvmlDeviceGetNumGpuCores")
    floats = cores * 2e6 * ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)
    major, minor = _asked(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(card), (0, 0))
    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(card)),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        capability=(int(major), int(minor)),
        link_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        link_width=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        read_bytes_per_second=read,
        float_ops_per_second=floats,
        has_display=ask("nvmlDeviceGetDisplayActive") == 1,
        driver=driver,
        n_cores=cores,
        programs=tuple(sorted(_programs(nvml, card), key=lambda p: (-(p.n_bytes or 0), p.name))),
    )


def _programs(nvml: ModuleType, card: Any) -> Iterator[Program]:
    """Who computes or draws on the card; one process is in both lists or in one."""
    calls = nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses
    seen: dict[int, int | None] = {}
    for call in calls:
        processes: list[Any] = _asked(nvml, partial(call, card), [])
        for process in processes:
            seen[process.pid] = process.usedGpuMemory
    for pid, n_bytes in seen.items():
        yield Program(_program_name(pid), None if n_bytes is None else int(n_bytes))


def _program_name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:  # ended, of another user, or of another container
        return f"process {pid}"


def _asked(nvml: ModuleType, call: Callable[[], Value], default: Value) -> Value:
    try:
        return call()
    except nvml.NVMLError:
        return default


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
