"""Attention and delta-rule kernels compile for devices that are not here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the GPU back end needs torch: pip install octavo[gpu]")
pytest.importorskip("triton", reason="the GPU back end needs triton: pip install octavo[gpu]")

COMPILE = Path(__file__).parent / "gpu_compile.py"
TARGETS = ["cuda:75", "cuda:89", "cuda:90", "hip:gfx1100", "hip:gfx90a"]


@pytest.mark.parametrize("word", ["attention", "delta"])
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile(target: str, word: str) -> None:
    # A process of its own: here Triton may be its interpreter.
    command = [sys.executable, str(COMPILE), target, word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    kernels = {report["kernel"] for report in reports}
    expected = {"attention": {"attend_rows", "append", "mix"}, "delta": {"recur_tokens", "solve"}}
    assert kernels >= expected[word]
    room = {"cuda:75": 65536, "cuda:89": 101376, "cuda:90": 232448}.get(target, 65536)
    assert all(report["shared"] <= room for report in reports)
