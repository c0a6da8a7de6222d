"""What this machine has, against psutil, and where the system tells nothing in files."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from octavo import machine


def check_memory() -> None:
    ours, theirs = machine.memory(), psutil.virtual_memory()
    assert (ours.total, ours.swap) == (theirs.total, psutil.swap_memory().total)
    assert abs(ours.available - theirs.available) < 1 << 30  # others use it too
    assert 0 < ours.available <= ours.total


def test_memory_is_as_psutil_tells_it() -> None:
    check_memory()


@pytest.mark.parametrize("text", [None, "", "MemTotal: 5 kB\n", "MemTotal: many kB\n"])
def test_memory_without_a_sound_file(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "meminfo")
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    check_memory()


def write_cores(folder: Path, siblings: list[str]) -> Path:
    for number, text in enumerate(siblings):
        place = folder / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "core_cpus_list").write_text(text + "\n")
    (folder / "cpufreq").mkdir(exist_ok=True)
    return folder


def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = write_cores(tmp_path, ["0,4", "1,5", "2", "3", "0,4", "1,5"])
    monkeypatch.setattr(machine, "_PROCESSORS", cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert machine.physical_cores() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert machine.physical_cores() == 3


def test_cores_without_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_PROCESSORS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 5)
    assert machine.physical_cores() == 5
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    assert machine.physical_cores() == 8


def test_cores_are_as_psutil_tells_them() -> None:
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    physical = psutil.cpu_count(logical=False) or len(allowed)
    assert machine.physical_cores() == min(physical, len(allowed))
