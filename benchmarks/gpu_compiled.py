"""What the GPU's kernels take on devices that are not here: registers, local and shared memory.

    python benchmarks/gpu_compiled.py --keep FOLDER [--target cuda:75 ...] [--table FILE]

Compiles the cases of tests/gpu_compile.py for each target, in a process of its own, and writes a
table (docs/gpu-kernels.md). Needs torch, triton and no card. What a target gave is kept in the
folder and not compiled again: it takes many minutes, and can so be done in pieces. With --as-is
nothing is compiled, and targets that are not done are told so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from gpu_targets import TARGETS  # noqa: E402

COMPILE = TESTS / "gpu_compile.py"
# Those of long prompts by chunks, whose compilation takes longest.
KERNELS = {"convolve", "solve", "pass_state", "read_out"}
INTRODUCTION = """# Kernels of the GPU back end, compiled

What a thread takes of registers and of local memory (registers' overflow, in bytes), and a program
of shared memory (bytes), on devices that the kernels were compiled for. Only on cuda:90 (an H200)
have kernels been run. Written by

    python benchmarks/gpu_compiled.py --keep FOLDER {options}--table docs/gpu-kernels.md

with Triton {triton} on {day}. A case calls operations as a model in the shape of Qwen3.6-35B-A3B
does; the cases are in [tests/gpu_compile.py](../tests/gpu_compile.py).
"""


def reports_of(target: str, keep: Path, as_is: bool) -> list[dict[str, Any]]:
    """A report for each kernel of each case, from the folder or by compiling."""
    kept = keep / f"{target.replace(':', '-')}.jsonl"
    unfinished = kept.with_suffix(".part")
    if as_is and not kept.exists():
        kept = unfinished
    elif not kept.exists():
        with unfinished.open("w") as file:
            subprocess.run([sys.executable, str(COMPILE), target], stdout=file, check=True)
        unfinished.rename(kept)
    return [json.loads(line) for line in kept.read_text().splitlines()]


def rows(target: str, reports: list[dict[str, Any]]) -> list[str]:
    """The lines of a target's table, one for each kernel of a case that differs in numbers."""
    missing = sorted(KERNELS - {r["kernel"] for r in reports})
    lines = [f"\n## {target}\n", "| case | kernel | warps | registers | local | shared |"]
    lines.append("|---|---|---|---|---|---|")
    for r in reports:
        numbers = r.get("num_warps", 4), r["registers"], r["local_bytes"], r["shared"]
        line = f"| {r['case']} | `{r['kernel']}` | " + " | ".join(map(str, numbers)) + " |"
        if line not in lines:
            lines.append(line)
    worst = max(reports, key=lambda r: r["local_bytes"])
    over = [r for r in reports if r["shared"] > TARGETS[target][1]]
    lines.append(
        f"\n{len(reports)} kernels, {sum(r['local_bytes'] > 0 for r in reports)} with local "
        f"memory; most: `{worst['kernel']}` of {worst['case']}, {worst['local_bytes']} bytes. "
        f"Beyond the shared memory of the device: {len(over) or 'none'}."
    )
    if missing:
        lines.append(f"\nNot compiled yet: {', '.join(f'`{name}`' for name in missing)}.")
    return lines


def main() -> None:
    """Compile and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--keep", type=Path, required=True, help="folder of what was compiled")
    parser.add_argument("--as-is", action="store_true", help="compile nothing")
    parser.add_argument("--table", type=Path, help="where to write; else standard output")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    is_all = args.target == list(TARGETS)
    text = INTRODUCTION.format(
        triton=version("triton"),
        day=date.today().isoformat(),
        options=("" if is_all else f"--target {' '.join(args.target)} ")
        + ("--as-is " if args.as_is else ""),
    )
    for target in args.target:
        text += "\n".join(rows(target, reports_of(target, args.keep, args.as_is))) + "\n"
    if args.table:
        args.table.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
