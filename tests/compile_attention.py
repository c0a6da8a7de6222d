"""Compile the attention and delta-rule kernels for a device, which need not be here.

    python tests/compile_attention.py cuda:89 [name]

A line a kernel: shared memory, registers and spills as the compiler reports them. `name` limits it
to kernels whose title holds it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from octavo.kv.state import AttentionSpec, RecurrentSpec
from octavo.ops.gpu import attend_kernels, delta_chunks, kv, recur_kernels

HEADS, ATTENTION = 16, AttentionSpec(2, 256, 256, 256**-0.5)
DELTA = RecurrentSpec(16, 32, 128, 128, 4, True)
POINTERS = {
    **dict.fromkeys(("starts", "n_past", "pages", "slots", "state_slots", "counters"), "*i32"),
    **dict.fromkeys(("mixed", "written", "along", "states"), "*fp16"),
    "data": "*u8",
}
NUMBERS = {
    **dict.fromkeys(("n_sequences", "n_tokens", "n_pages", "splits", "stride", "z_stride"), "i32"),
    **dict.fromkeys(("eps", "scale"), "fp32"),
}


@dataclass(frozen=True)
class Case:
    title: str
    kernel: Any
    constants: dict[str, Any]
    tuples: dict[str, int]  # arguments that are tuples of so many numbers
    warps: int = 4
    stages: int = 2


def cases(arch: int) -> Iterator[Case]:
    is_small = arch != 90
    rows, positions = (64, 32) if is_small else (128, 64)
    stages = 1 if arch == 75 else 2
    for name in ("f16", "q8_0", "f32"):
        layer = {"LAYER": kv.layout(name, ATTENTION, HEADS)}
        strides = {"strides": 8, "sizes": 3}
        few = {**layer, "ROWS": 16, "N": positions, "IS_SPLIT": True, "APPENDS": True}
        many = {**layer, "ROWS": rows, "N": positions, "IS_SPLIT": False, "APPENDS": False}
        rows_kernel = attend_kernels.attend_rows
        yield Case(f"decode {name}", rows_kernel, {**few, "IS_GATED": True}, strides, 4, stages)
        if name == "f32":
            continue
        yield Case(f"prefill {name}", rows_kernel, {**many, "IS_GATED": True}, strides, 8, stages)
        yield Case(f"append {name}", attend_kernels.append, layer, {"strides": 4})
    parts = {"DIMS": 64, "ROWS": 16, "N": positions, "IS_GATED": True}
    yield Case("mix", attend_kernels.mix, {**layer, **parts}, {"gate_strides": 2})
    wide = {"SPEC": DELTA, "DK": 128, "DV": 128}
    yield Case("tokens", recur_kernels.recur_tokens, wide, {"strides": 4}, 8)
    yield Case("convolve", delta_chunks.convolve, {"SPEC": DELTA, "D": 128}, {})
    yield Case("solve", delta_chunks.solve, wide, {"strides": 3})
    columns = {"SPEC": DELTA, "DK": 128, "COLUMNS": 32}
    yield Case("pass_state", delta_chunks.pass_state, columns, {}, 4, stages)
    yield Case("read_out", delta_chunks.read_out, wide, {}, 8)


def compiled(case: Case, target: GPUTarget) -> Any:
    signature: dict[str, Any] = {}
    aligned = {}
    for i, name in enumerate(case.kernel.arg_names):
        if name in case.constants:
            signature[name] = "constexpr"
        elif name in case.tuples:
            signature[name] = ("i32",) * case.tuples[name]
            aligned |= {(i, j): [["tt.divisibility", 16]] for j in range(case.tuples[name])}
        elif name in NUMBERS:
            signature[name] = NUMBERS[name]
        else:
            signature[name] = POINTERS.get(name, "*fp32")
            aligned[i,] = [["tt.divisibility", 16]]
    source = ASTSource(case.kernel, signature, case.constants, aligned)
    options = {"num_warps": case.warps, "num_stages": case.stages}
    return triton.compile(source, target=target, options=options)


def usage(kernel: Any, target: GPUTarget) -> str:
    """Registers and spills: of NVIDIA's assembler, or as noted in AMD's assembly."""
    if target.backend == "hip":
        text = kernel.asm["amdgcn"]
        vector = re.search(r"\.vgpr_count:\s+(\d+)", text)
        spilled = re.search(r"\.vgpr_spill_count:\s+(\d+)", text)
        return f"{vector and vector[1]} registers, {spilled and spilled[1]} spills"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(kernel.asm["ptx"])
        file.flush()
        arch = re.search(r"\.target (\w+)", kernel.asm["ptx"])[1]
        command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name={arch}", file.name]
        done = subprocess.run([*command, "-o", os.devnull], capture_output=True, text=True)
    registers = re.search(r"Used (\d+) registers", done.stderr)
    spilled = re.search(r"(\d+) bytes spill loads", done.stderr)
    return f"{registers and registers[1]} registers, {spilled and spilled[1]} bytes of spills"


def main() -> None:
    backend, _, arch = sys.argv[1].partition(":")
    wave = 64 if arch == "gfx90a" else 32
    target = GPUTarget(backend, int(arch) if backend == "cuda" else arch, wave)
    for case in cases(int(arch) if backend == "cuda" else 0):
        if len(sys.argv) > 2 and sys.argv[2] not in case.title:
            continue
        kernel = compiled(case, target)
        shared = kernel.metadata.shared
        print(f"{case.title:14s} {shared:7d} bytes shared, {usage(kernel, target)}", flush=True)


if __name__ == "__main__":
    main()
