"""Main memory that a full card borrows, as Windows counts it for each program.

Windows' display driver model gives a full card pages of main memory instead of an error ("shared"
memory, in the task manager's words), and all becomes about ten times slower. The counters are
those of the performance data helper, pdh.dll. Other systems have none: there the answer is
nothing, and under WSL only what the driver's totals give away is known.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

REMEDY = (
    "Close other programs that use the card, or give octavo less of it (--vram, -c). In NVIDIA's "
    'control panel, "CUDA - Sysmem Fallback Policy: Prefer No Sysmem Fallback" makes it an error.'
)

# Shared memory is also what a program pins by itself, so this alone is no fault.
_COUNTER = r"\GPU Process Memory(*)\Shared Usage"
_AS_LARGE = 0x400  # PDH_FMT_LARGE
_MORE_DATA = 0x800007D2
_VALID = (0, 1)  # PDH_CSTATUS_VALID_DATA, _NEW_DATA


class Value(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE with its large member."""

    _fields_ = (("status", ctypes.c_uint32), ("large", ctypes.c_int64))


class Item(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE_ITEM_W."""

    _fields_ = (("name", ctypes.c_wchar_p), ("value", Value))


def borrowed_bytes() -> dict[int, int]:
    """Process -> bytes of main memory that cards use for it; {} where no system counts them."""
    if sys.platform != "win32":
        return {}
    try:
        return read(ctypes.WinDLL("pdh"))
    except OSError:
        return {}


def read(pdh: Any) -> dict[int, int]:
    """The same by the functions of that library."""
    query, counter = ctypes.c_void_p(), ctypes.c_void_p()
    if pdh.PdhOpenQueryW(None, None, ctypes.byref(query)):
        return {}
    try:
        added = pdh.PdhAddEnglishCounterW(query, _COUNTER, None, ctypes.byref(counter))
        if added or pdh.PdhCollectQueryData(query):  # no such counter, or nobody uses a card
            return {}
        found: dict[int, int] = {}
        for name, n_bytes in _items(pdh, counter):
            # pid_4711_luid_0x00000000_0x0000C0DE_phys_0: once for each card.
            pid = name.removeprefix("pid_").partition("_")[0]
            if pid.isdecimal():
                found[int(pid)] = found.get(int(pid), 0) + n_bytes
        return found
    finally:
        pdh.PdhCloseQuery(query)


def _items(pdh: Any, counter: ctypes.c_void_p) -> Iterator[tuple[str, int]]:
    size, n_items = ctypes.c_uint32(0), ctypes.c_uint32(0)
    ask, form = pdh.PdhGetFormattedCounterArrayW, ctypes.c_uint32(_AS_LARGE)
    status = ask(counter, form, ctypes.byref(size), ctypes.byref(n_items), None)
    if status & 0xFFFFFFFF != _MORE_DATA:
        return
    buffer = ctypes.create_string_buffer(size.value)
    if ask(counter, form, ctypes.byref(size), ctypes.byref(n_items), buffer):
        return  # programs came or went between the two calls
    for item in (Item * n_items.value).from_buffer(buffer):
        if item.value.status in _VALID:
            yield item.name, item.value.large
