"""Functions of NVIDIA's driver that torch does not have, called through ctypes.

They need a context, which the thread has as soon as torch has worked in it.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

WORD, ADDRESS, SIZE = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
POINTER = ctypes.c_void_p


def call(name: str, types: tuple[Any, ...], *arguments: int) -> None:
    """Call a function whose arguments have these types.

    Raises:
        OSError, AttributeError: there is no such driver, or it is too old.
        RuntimeError: the function failed.
    """
    function = getattr(_driver(), name)
    given = [type(value) for type, value in zip(types, arguments, strict=True)]
    function.restype = ctypes.c_int
    if status := function(*given):
        raise RuntimeError(f"{name} failed with status {status}")


@cache
def _driver() -> Any:
    if sys.platform == "win32":
        return ctypes.WinDLL("nvcuda.dll")
    return ctypes.CDLL("libcuda.so.1")
