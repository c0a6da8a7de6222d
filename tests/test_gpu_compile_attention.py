"""Attention and delta-rule kernels compile for devices that are not here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the GPU back end needs torch: pip install octavo[gpu]")
pytest.importorskip("triton", reason="the GPU back end needs triton: pip install octavo[gpu]")

COMPILE = Path(__file__).parent / "compile_attention.py"
TARGETS = ["cuda:75", "cuda:89", "cuda:90", "hip:gfx1100", "hip:gfx90a"]


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile(target: str) -> None:
    # A process of its own: here Triton may be its interpreter.
    command = [sys.executable, str(COMPILE), target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= 8
    assert not [line for line in lines if "spills" not in line]
