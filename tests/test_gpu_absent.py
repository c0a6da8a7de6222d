"""Without torch, Triton or a card the GPU back end says what to do; all else needs none of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.cli._options import LoadFlags
from octavo.errors import SettingError

WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from octavo.errors import SettingError
from octavo.loading import load
try:
    load({path!r}, backend="gpu")
except SettingError as error:
    print(error.message, "|", error.hint)
"""


@pytest.mark.parametrize("name", ["torch", "triton"])
def test_missing_package_is_named(name: str, tiny_file: Callable[..., Path]) -> None:
    if name == "triton":
        pytest.importorskip("torch", reason="torch would be missed first")
    code = WITHOUT.format(missing=[name], path=str(tiny_file("llama")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    message, hint = done.stdout.split("|")
    assert name in message.rpartition(";")[2]
    assert "octavo[gpu]" in hint


@pytest.mark.parametrize(("n_layers", "backend"), [(0, "cpu"), (99, "gpu"), (-1, "gpu")])
def test_layers_on_the_card(n_layers: int, backend: str) -> None:
    assert LoadFlags(n_gpu_layers=n_layers).wishes() == {"backend": backend}


def test_the_device_wins_over_layers() -> None:
    assert LoadFlags(n_gpu_layers=0, backend="gpu").wishes() == {"backend": "gpu"}


def test_a_part_of_the_layers_is_refused() -> None:
    with pytest.raises(SettingError, match="-ngl 20 would put a part"):
        LoadFlags(n_gpu_layers=20).wishes()
