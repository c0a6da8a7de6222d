"""What the planner knows of a machine: cards through a made-up NVML, speeds and their file."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from octavo.plan import gpus, hardware, speeds
from octavo.plan.gpus import Gpu, Program, look, probe_gpus
from octavo.plan.speeds import Speeds
from octavo.settings import Settings

GB = 10**9


class NVMLError(Exception):
    """As the module's own."""


class Nvml(ModuleType):
    """Answers like pynvml for cards given as dictionaries; what is not there is not supported."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, *cards: dict[str, Any], fault: str = "") -> None:
        super().__init__("pynvml")
        self.cards, self.fault, self.is_open = cards, fault, False

    def nvmlInit(self) -> None:
        if self.fault:
            raise NVMLError(self.fault)
        self.is_open = True

    def nvmlShutdown(self) -> None:
        assert self.is_open
        self.is_open = False

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.95"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        assert self.is_open
        return self.cards[index]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def call(card: dict[str, Any], *arguments: Any) -> Any:
            key = (name.removeprefix("nvmlDeviceGet"), *arguments)
            value = card.get(key if arguments else key[0], NVMLError("Not Supported"))
            if isinstance(value, Exception):
                raise value
            return value

        return call


def process(pid: int, n_bytes: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=n_bytes)


RTX_4060_TI: dict[Any, Any] = {
    "Name": "NVIDIA GeForce RTX 4060 Ti",
    "MemoryInfo": SimpleNamespace(total=8_585_740_288, free=7_400_000_000),
    "CudaComputeCapability": (8, 9),
    "MemoryBusWidth": 128,
    ("MaxClockInfo", Nvml.NVML_CLOCK_MEM): 9001,
    ("MaxClockInfo", Nvml.NVML_CLOCK_SM): 2535,
    "NumGpuCores": 4352,
    "MaxPcieLinkGeneration": 4,
    "MaxPcieLinkWidth": 8,
    "DisplayActive": 1,
    "ComputeRunningProcesses": [process(os.getpid(), 300_000_000), process(1 << 30, 20)],
    "GraphicsRunningProcesses": [process(os.getpid(), 300_000_000)],
}


def use(monkeypatch: pytest.MonkeyPatch, nvml: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def test_a_card_by_what_nvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(RTX_4060_TI)
    use(monkeypatch, nvml)
    (card,) = probe_gpus()
    assert (card.name, card.driver) == ("NVIDIA GeForce RTX 4060 Ti", "580.95")
    assert (card.total_bytes, card.free_bytes) == (8_585_740_288, 7_400_000_000)
    assert (card.capability, card.has_display) == ((8, 9), True)
    # The makers' figures: 288 GB/s, 22.06 TFLOPS.
    assert card.read_bytes_per_second == pytest.approx(288e9, rel=0.001)
    assert card.float_ops_per_second == pytest.approx(22.06e12, rel=0.001)
    assert 11.8e9 < card.link_bytes_per_second < 13.5e9
    this = gpus.psutil.Process().name()
    assert card.programs == (Program(this, 300_000_000), Program(f"process {1 << 30}", 20))
    assert not nvml.is_open


def test_a_card_that_says_little(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=4 * GB, free=3 * GB)
    windows = [process(os.getpid(), None)]
    use(
        monkeypatch,
        Nvml({"Name": b"GRID", "MemoryInfo": memory, "GraphicsRunningProcesses": windows}),
    )
    (card,) = probe_gpus()
    this = gpus.psutil.Process().name()
    programs = (Program(this, None),)
    assert card == Gpu("GRID", 4 * GB, 3 * GB, driver="580.95", programs=programs)
    assert card.link_bytes_per_second == 0


def answer(monkeypatch: pytest.MonkeyPatch, out: str, code: int = 0) -> None:
    """nvidia-smi says this."""

    def run(command: list[str], **_: object) -> SimpleNamespace:
        assert command[0] == "nvidia-smi"
        return SimpleNamespace(returncode=code, stdout=out, stderr="")

    monkeypatch.setattr(gpus.subprocess, "run", run)


def test_cards_without_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    row = "NVIDIA GeForce RTX 4060 Ti, 8188, 7000, 8.9, 4, 8, Enabled, 580.95\n"
    answer(monkeypatch, row + "GRID, 4096, 4000, [N/A], [N/A], [N/A], [N/A], 580.95\n")
    found, why = look()
    assert why == ""
    first, second = found
    assert (first.total_bytes, first.free_bytes) == (8188 << 20, 7000 << 20)
    assert (first.capability, first.link_generation, first.link_width) == ((8, 9), 4, 8)
    assert (first.has_display, first.driver) == (True, "580.95")
    assert second == Gpu("GRID", 4096 << 20, 4000 << 20, driver="580.95")
    answer(monkeypatch, "couldn't communicate with the driver\n", 9)
    assert look() == ((), "nvidia-smi does not answer: couldn't communicate with the driver")
    answer(monkeypatch, "")
    assert look() == ((), "")


def test_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    monkeypatch.setenv("PATH", "")
    found, why = look()
    assert found == ()
    assert "nvidia-ml-py" in why
    use(monkeypatch, Nvml(fault="Driver Not Loaded"))
    assert look() == ((), "the driver does not answer: Driver Not Loaded")
    use(monkeypatch, Nvml())
    assert look() == ((), "")
    lost = Nvml({"Name": "lost", "MemoryInfo": NVMLError("GPU is lost")})
    use(monkeypatch, lost)
    assert look() == ((), "the driver does not answer: GPU is lost")
    assert not lost.is_open


def test_the_machine_has_its_cards_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Nvml(RTX_4060_TI, RTX_4060_TI))
    here = hardware.probe()
    assert [card.capability for card in here.gpus] == [(8, 9)] * 2
    assert here.page_file_bytes >= 0
    assert here.lock_limit_bytes is None or here.lock_limit_bytes >= 0
    monkeypatch.setattr(hardware.platform, "release", lambda: "6.6.87-microsoft-standard-WSL2")
    assert hardware.probe().pin_limit_bytes == here.memory_bytes // 2
    monkeypatch.setattr(hardware.platform, "release", lambda: "6.18.0")
    monkeypatch.setattr(hardware.sys, "platform", "linux")
    assert hardware.probe().pin_limit_bytes is None
    monkeypatch.setattr(hardware.sys, "platform", "win32")
    assert hardware.probe().pin_limit_bytes == here.memory_bytes // 2


@pytest.mark.parametrize(("limit", "expected"), [(8 << 20, 8 << 20), (-1, None)])
def test_the_lock_limit(limit: int, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    unlimited = resource.RLIM_INFINITY if limit == -1 else limit
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert hardware.probe().lock_limit_bytes == expected


@pytest.fixture
def settings() -> Settings:
    return Settings.from_environment()


def test_speeds_are_measured_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("octavo._native")
    assert hardware.probe().speeds is None
    first = hardware.probe(measure=True)
    assert first.speeds is not None
    assert all(value > 1e8 for value in dataclasses.astuple(first.speeds))

    def again(*_: object) -> Speeds:
        raise AssertionError("measured again")

    monkeypatch.setattr(speeds, "measure", again)
    assert hardware.probe(measure=True).speeds == first.speeds
    assert hardware.probe().speeds == first.speeds
    assert speeds.known(settings, first.n_threads + 1, first.isa) is None
    assert speeds.measured(settings, 1, "", GB) is None  # no native kernels


MADE_UP = Speeds(50e9, 20e9, 2e12, 5e11)


def test_each_machine_has_its_speeds(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([MADE_UP, dataclasses.replace(MADE_UP, read_bytes_per_second=9e9)])
    monkeypatch.setattr(speeds, "measure", lambda *_: next(given))
    for n_threads, read in ((8, 50e9), (2, 9e9), (8, 50e9), (2, 9e9)):
        found = speeds.measured(settings, n_threads, "avx2", GB)
        assert found is not None
        assert found.read_bytes_per_second == read
    assert not [p for p in settings.cache_dir.iterdir() if p.name != "speeds.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-9],
        lambda text: text.replace('"version": 1', '"version": 2'),
        lambda text: text.replace("20000000000.0", "0"),
        lambda text: text.replace("20000000000.0", '"fast"'),
        lambda text: text.replace("copy_", "kopy_"),
        lambda text: "[1, 2]",
    ],
)
def test_a_damaged_file_of_speeds_is_made_again(
    damage: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speeds, "measure", lambda *_: MADE_UP)
    assert speeds.measured(settings, 8, "avx2", GB) == MADE_UP
    path = settings.cache_dir / "speeds.json"
    path.write_text(damage(path.read_text()))
    assert speeds.known(settings, 8, "avx2") is None
    assert speeds.measured(settings, 8, "avx2", GB) == MADE_UP
    assert speeds.known(settings, 8, "avx2") == MADE_UP
    assert json.loads(path.read_text())["version"] == 1


def test_a_folder_that_cannot_be_written_to(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(speeds, "measure", lambda *_: MADE_UP)
    nowhere = dataclasses.replace(settings, cache_dir=tmp_path / "file" / "cache")
    assert speeds.measured(nowhere, 8, "avx2", GB) == MADE_UP
    assert speeds.known(nowhere, 8, "avx2") is None
