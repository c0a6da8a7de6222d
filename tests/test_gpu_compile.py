"""Kernels that read weights compile for devices that are not here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the GPU back end needs torch: pip install octavo[gpu]")
pytest.importorskip("triton", reason="the GPU back end needs triton: pip install octavo[gpu]")

COMPILE = Path(__file__).parent / "gpu_compile.py"
# What a program may have of shared memory.
TARGETS = {"cuda:75": 65536, "cuda:89": 101376, "hip:gfx1100": 65536, "hip:gfx90a": 65536}
KERNELS = {
    "q6_k": {"_embed", "_few", "_many", "_halve"},
    "experts": {"few_gate_up", "few_down", "_sort", "many_gate_up", "many_down", "sum_pairs"},
    "split": {"_give", "_take", "_slots_of_blocks"},
    "glu": {"few_gate_up", "few_down", "many_gate_up", "many_down"},
}
FEW = {"_few", "few_gate_up", "few_down"}


@pytest.mark.parametrize("word", sorted(KERNELS))
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile(target: str, word: str) -> None:
    # A process of its own: here Triton may be its interpreter.
    command = [sys.executable, str(COMPILE), target, word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert {report["kernel"] for report in reports} >= KERNELS[word]
    for report in reports:
        assert report["shared"] <= TARGETS[target], report
        # With few tokens speed is that of memory: none of it may go to registers' overflow.
        assert report["kernel"] not in FEW or report["local_bytes"] == 0, report
