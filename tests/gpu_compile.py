"""Compile the GPU's kernels for a device that is not here, and say what they take.

    python tests/gpu_compile.py cuda:90 [WORD]

Operations are called as a model calls them, on tensors of the CPU, with a recorder in the place of
the launches: each kernel is compiled with just the arguments that the device would see. A line of
JSON for each: registers, bytes of local memory (spills), shared memory. WORD selects cases.

A new case is a function in CASES; it calls operations.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpu_targets import TARGETS
from octavo import quants
from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.state import AttentionSpec, RecurrentSpec
from octavo.ops import gpu
from octavo.ops.gpu import device, relay
from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.uint8: "*u8",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint32: "*u32",
}


def weight(name: str, *shape: int) -> Weight:
    """A weight of noise."""
    form = quants.get(name)
    n = int(np.prod(shape)) // form.block_elements * form.block_bytes
    return Weight(name, name, shape, np.zeros(n, np.uint8), gpu)


def few_products(name: str) -> Callable[[], object]:
    from octavo.ops.gpu.linear import linear

    w = weight(name, 2048, 2048)

    def run() -> None:
        linear(torch.zeros(1, 2048), (w,))
        linear(torch.zeros(4, 2048), (w, w))

    return run


def many_products(name: str) -> Callable[[], object]:
    from octavo.ops.gpu.linear import linear

    return lambda: [linear(torch.zeros(n, 2048), (weight(name, 2048, 2048),)) for n in (16, 512)]


def rows_of(name: str) -> Callable[[], object]:
    from octavo.ops.gpu.embed import embed

    return lambda: embed(weight(name, 64, 2048), torch.zeros(3, dtype=torch.int32))


def expert_layer(gate: str, down: str, n_tokens: int) -> Callable[[], object]:
    from octavo.ops.gpu.experts import experts

    matrices = [weight(gate, 16, 512, 2048), weight(gate, 16, 512, 2048)]
    bank = ExpertBank(*matrices, weight(down, 16, 2048, 512), "silu", gpu)
    ids = torch.zeros(n_tokens, 8, dtype=torch.int32)
    return lambda: experts(torch.zeros(n_tokens, 2048), bank, ids, torch.zeros(n_tokens, 8))


def hand_over() -> Callable[[], object]:
    from octavo.ops.gpu import handoff, split

    x, ids, weights = torch.zeros(3, 2048), torch.zeros(3, 8, dtype=torch.int32), torch.zeros(3, 8)

    def run() -> None:
        for has_link in False, True:
            handoff._give[(2, 3)](
                x, 2048, ids, weights, ids, ids, x, ids, weights, ids, ids, 2048, 8, 1024, 8,
                has_link,
            )  # fmt: skip
            for has_beside in False, True:
                handoff._take[(6,)](x, x, x, x, x, x.numel(), has_link, has_beside, 1024)
        split._slots_of_blocks[(3, 5)](ids, ids, ids, ids, 700, -1, 32, 256)

    return run


def over_the_link() -> Callable[[], object]:
    from octavo.ops.gpu.experts import bank_of, weighted_sum

    matrices = [weight("q4_k", 16, 512, 2048), weight("q4_k", 16, 512, 2048)]
    bank = ExpertBank(*matrices, weight("q4_k", 16, 2048, 512), "silu", gpu)
    there = bank_of(bank, [1 << 40, 1 << 41, 1 << 42], [589_824] * 3)
    ids = torch.zeros(1, 8, dtype=torch.int32)
    return lambda: weighted_sum(torch.zeros(1, 2048), there, ids, torch.zeros(1, 8))


def unit(name: str, n_tokens: int) -> Callable[[], object]:
    from octavo.ops.gpu.glu import glu

    gate, down, scale = (weight(n, *s) for n, s in ((name, (512, 2048)), (name, (2048, 512)),
                                                    ("f32", (2048,))))  # fmt: skip
    return lambda: glu(torch.zeros(n_tokens, 2048), gate, gate, down, "silu", scale)


def norms() -> Callable[[], object]:
    x, heads = torch.zeros(3, 2048), torch.zeros(3, 16, 512)
    wide, narrow = weight("f32", 2048), weight("f32", 256)

    def run() -> None:
        gpu.norm(x, wide, 1e-6)
        gpu.norm(x, wide, 1e-6, x)
        gpu.norm(heads[:, :, :256], narrow, 1e-6)

    return run


def rotations() -> Callable[[], object]:
    frequencies = np.ones(32, np.float32)
    tables = [RopeTable(frequencies, pairing, 1.0, gpu) for pairing in ("neox", "adjacent")]
    q, k, w = torch.zeros(3, 16, 512), torch.zeros(3, 2, 256), weight("f32", 256)
    positions = torch.zeros(3, dtype=torch.int32)
    return lambda: [
        gpu.rope(q[:, :, :256], k, positions, table, norms, 1e-6)
        for table in tables
        for norms in (None, (w, w))
    ]


def routing() -> Callable[[], object]:
    gate = weight("f32", 256, 2048)
    return lambda: [
        gpu.route(torch.zeros(n, 2048), gate, RouteRule(8, activation))
        for n, activation in ((1, "softmax"), (3, "sigmoid"))
    ]


def attention(name: str, n_tokens: int, n_heads: int = 16) -> Callable[[], object]:
    from octavo.ops.gpu.attend import attend

    spec = AttentionSpec(2, 256, 256, 256**-0.5)
    data = torch.zeros(1, formats.page_bytes(name, spec), dtype=torch.uint8)
    layer = AttentionLayer(spec, name, data, gpu)
    q, k, v = (torch.zeros(n_tokens, heads, 256) for heads in (n_heads, 2, 2))
    batch = Batch.empty(n_tokens, 1, 2048, 0)
    on_device = Batch(*(torch.from_numpy(x) for x in vars(batch).values()))
    return lambda: attend(q, k, v, layer, on_device, q)


def delta_rule(n_tokens: int) -> Callable[[], object]:
    from octavo.ops.gpu.recur import recur

    spec = RecurrentSpec(16, 32, 128, 128, 4, True)
    conv, state = torch.zeros(2, *spec.conv_shape), torch.zeros(2, *spec.state_shape)
    sizes = ((spec.n_channels, 4), (32,), (32,), (128,))
    w = RecurWeights(*(weight("f32", *size) for size in sizes), 1e-6)
    inputs = [torch.zeros(n_tokens, width) for width in (spec.n_channels, 4096, 32, 32)]
    batch = Batch.empty(n_tokens, 1, 1, 0)
    on_device = Batch(*(torch.from_numpy(x) for x in vars(batch).values()))
    return lambda: recur(*inputs, w, RecurrentLayer(spec, conv, state, gpu), on_device)


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    **{f"embed {n}": lambda n=n: rows_of(n) for n in gpu.quants.names()},
    **{f"few {n}": lambda n=n: few_products(n) for n in ("q4_k", "q6_k", "q8_0", "f32")},
    **{f"many {n}": lambda n=n: many_products(n) for n in ("q4_k", "q6_k", "q8_0")},
    "experts few": lambda: expert_layer("q4_k", "q5_k", 1),
    "experts many": lambda: expert_layer("q4_k", "q5_k", 512),
    "split": hand_over,
    "link": over_the_link,
    "norm": norms,
    "rope": rotations,
    "route": routing,
    "glu few": lambda: unit("q8_0", 1),
    "glu many": lambda: unit("q8_0", 512),
    **{f"attention few {n}": lambda n=n: attention(n, 1) for n in ("f16", "q8_0", "f32")},
    **{f"attention many {n}": lambda n=n: attention(n, 4096) for n in ("f16", "q8_0")},
    "delta rule few": lambda: delta_rule(1),
    "delta rule many": lambda: delta_rule(512),
}


class Recorder:
    """Takes the place of `JITFunction.run`: compiles for the target instead of launching."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target
        self.seen: set[str] = set()
        self.case = ""

    def run(self, kernel: Any, *args: Any, **kwargs: Any) -> None:
        names = kernel.arg_names
        bound = dict(zip(names, args, strict=False)) | {
            k: v for k, v in kwargs.items() if k in names
        }
        options = {
            k: v for k, v in kwargs.items() if k in ("num_warps", "num_stages", "launch_pdl")
        }
        signature, constants, attributes = self._described(kernel, bound)
        key = repr((kernel.__name__, signature, constants, attributes, options))
        if key in self.seen:
            return
        self.seen.add(key)
        source = ASTSource(kernel, signature, constants, attributes)
        start = time.perf_counter()
        compiled = triton.compile(source, target=self.target, options=options)
        seconds = time.perf_counter() - start
        report = {"case": self.case, "kernel": kernel.__name__, **options}
        report |= resources(compiled) | {"seconds": round(seconds, 1)}
        print(json.dumps(report), flush=True)

    @staticmethod
    def _described(kernel: Any, bound: dict[str, Any]) -> tuple[Any, Any, Any]:
        signature, constants, attributes = {}, {}, {}
        for i, parameter in enumerate(kernel.params):
            value = bound[parameter.name]
            if parameter.is_constexpr or value is None or isinstance(value, bool):
                signature[parameter.name], constants[parameter.name] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name] = TYPES[value.dtype]
                # On the device allocations are aligned to 512 bytes, in this process to 64 at best.
                if value.storage_offset() * value.element_size() % 16 == 0:
                    attributes[(i,)] = [["tt.divisibility", 16]]
            elif isinstance(value, tuple):
                signature[parameter.name] = ("i32",) * len(value)
                for j, number in enumerate(value):
                    if number % 16 == 0:
                        attributes[(i, j)] = [["tt.divisibility", 16]]
            elif isinstance(value, int):
                if value == 1:
                    signature[parameter.name], constants[parameter.name] = "constexpr", 1
                else:
                    signature[parameter.name] = "i32" if abs(value) < 2**31 else "i64"
                    if value % 16 == 0:
                        attributes[(i,)] = [["tt.divisibility", 16]]
            else:
                signature[parameter.name] = "fp32"
        return signature, constants, attributes


def resources(compiled: Any) -> dict[str, int]:
    """Registers and bytes of local memory of a thread, shared memory of a program."""
    found = {"shared": compiled.metadata.shared}
    if "cubin" in compiled.asm:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(compiled.asm["cubin"])
            file.flush()
            text = subprocess.run(
                [CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True
            )
        usage = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text.stdout + text.stderr))
        return found | {
            "registers": int(usage["REG"]),
            "local_bytes": int(usage["STACK"]) + int(usage["LOCAL"]),
        }
    usage = dict(re.findall(r"\.(\w+):\s+(\d+)", compiled.asm["amdgcn"]))
    return found | {
        "registers": int(usage["vgpr_count"]),
        "local_bytes": int(usage["private_segment_fixed_size"]),
    }


def main() -> None:
    """Compile every case whose name holds the word."""
    names, shared = TARGETS[sys.argv[1]]
    target = GPUTarget(*names)
    words = sys.argv[2:]
    is_cuda = target.backend == "cuda"
    fake = device.Device(
        torch.device("cpu"), sys.argv[1], target.arch if is_cuda else 0, not is_cuda, 132, 0, shared
    )
    recorder = Recorder(target)
    # What kernels ask for while they are compiled; and as if launches could begin early there.
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    relay.works = lambda: is_cuda and target.arch >= relay.LEAST_ARCH
    device.find.cache_clear()
    device.torch.cuda.is_available = lambda: True
    for module in [m for n, m in sys.modules.items() if n.startswith("octavo.ops.gpu")]:
        if hasattr(module, "find") and module.__name__.rpartition(".")[2] not in ("quants", "kv"):
            module.find = lambda: fake
    triton.runtime.JITFunction.run = lambda kernel, *args, grid, warmup, **kwargs: recorder.run(
        kernel, *args, **kwargs
    )
    for name, case in CASES.items():
        if all(word in name for word in words):
            recorder.case = name
            case()()


if __name__ == "__main__":
    main()
