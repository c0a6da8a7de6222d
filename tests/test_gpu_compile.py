"""The GPU's kernels compile for devices that are not here, and fit into them.

Some kernels for some devices; all of them, which takes many minutes, with OCTAVO_GPU_COMPILE=all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_targets import TARGETS

pytest.importorskip("torch", reason="the GPU back end needs torch: pip install octavo[gpu]")
pytest.importorskip("triton", reason="the GPU back end needs triton: pip install octavo[gpu]")

COMPILE = Path(__file__).parent / "gpu_compile.py"
SOME = {
    ("cuda:75", "few q4_k"): {"_few"},
    ("cuda:90", "delta rule few"): {"recur_tokens"},
    ("hip:gfx1100", "many q6_k"): {"_many", "_halve"},
    ("hip:gfx90a", "attention few q8_0"): {"attend_rows", "mix"},
}
ALL = {
    *("_embed", "_few", "_many", "_halve", "_norm", "_rope", "_sort"),
    *("few_gate_up", "few_down", "many_gate_up", "many_down", "sum_pairs"),
    *("_give", "_take", "_slots_of_blocks"),
    *("attend_rows", "append", "mix"),
    *("recur_tokens", "convolve", "solve", "pass_state", "read_out"),
}
CASES = {(target, ""): ALL for target in TARGETS}
# With few tokens speed is that of memory: none of it may go to registers' overflow.
FEW = {"_few", "few_gate_up", "few_down"}


@pytest.mark.parametrize(
    ("target", "word"), CASES if os.environ.get("OCTAVO_GPU_COMPILE") == "all" else SOME
)
def test_kernels_compile(target: str, word: str) -> None:
    # A process of its own: here Triton may be its interpreter.
    command = [sys.executable, str(COMPILE), target, *([word] if word else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert {report["kernel"] for report in reports} >= (SOME | CASES)[target, word]
    for report in reports:
        assert report["shared"] <= TARGETS[target][1], report
        assert report["kernel"] not in FEW or report["local_bytes"] == 0, report
