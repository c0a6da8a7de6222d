"""The operations on a GPU, in Triton: the same names as the other back ends.

Activations are float32 torch tensors on the device, ids are int32. Shapes and meaning are in
`octavo.ops`. This package alone imports torch and triton.
"""

from __future__ import annotations

from octavo.errors import SettingError
from octavo.settings import grow_in_place

try:
    grow_in_place()
    import torch  # noqa: F401
    import triton  # noqa: F401
except ImportError as error:
    raise SettingError(
        f"The GPU back end needs the packages torch and triton; {error.name} is missing",
        "Install them with: pip install 'octavo[gpu]', or use --device cpu.",
    ) from error

from octavo.ops.gpu.arrange import add, concat, softcap, take
from octavo.ops.gpu.attend import attend
from octavo.ops.gpu.device import alloc, held_bytes, limit_memory
from octavo.ops.gpu.embed import embed
from octavo.ops.gpu.experts import experts
from octavo.ops.gpu.glu import glu
from octavo.ops.gpu.graph import capture
from octavo.ops.gpu.linear import linear
from octavo.ops.gpu.norm import norm
from octavo.ops.gpu.profile import profiled
from octavo.ops.gpu.quants import names as fast_formats
from octavo.ops.gpu.recur import recur
from octavo.ops.gpu.rope import rope
from octavo.ops.gpu.route import route
from octavo.ops.gpu.split import Split
from octavo.ops.gpu.transfer import fetch, host, send, store
from octavo.ops.gpu.weights import leave, place

__all__ = [
    "Split",
    "add",
    "alloc",
    "attend",
    "capture",
    "concat",
    "embed",
    "experts",
    "fast_formats",
    "fetch",
    "glu",
    "held_bytes",
    "host",
    "leave",
    "limit_memory",
    "linear",
    "norm",
    "place",
    "profiled",
    "recur",
    "rope",
    "route",
    "send",
    "softcap",
    "store",
    "take",
]
