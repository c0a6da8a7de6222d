"""The codebooks of the iq1, iq2 and iq3 formats, and their shared rule for signs.

A codebook is a list of points: 8 (or 4) weights each, named by a number in the block. The points
are constants of the format. `_grids.bin` holds them as digits of 2 or 4 bits, low bits first; a
digit stands for a level.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_IQ2_LEVELS = (8, 25, 43)


class _Codebook(NamedTuple):
    start: int
    """Byte in `_grids.bin`."""
    n_entries: int
    n_weights: int
    digit_bits: int
    levels: tuple[int, ...]


_CODEBOOKS = {
    "iq2_xxs": _Codebook(0, 256, 8, 2, _IQ2_LEVELS),
    "iq2_xs": _Codebook(512, 512, 8, 2, _IQ2_LEVELS),
    "iq2_s": _Codebook(1536, 1024, 8, 2, _IQ2_LEVELS),
    "iq3_xxs": _Codebook(3584, 256, 4, 4, (4, 12, 20, 28, 36, 44, 52, 62)),
    "iq3_s": _Codebook(4096, 512, 4, 4, (1, 3, 5, 7, 9, 11, 13, 15)),
    "iq1_s": _Codebook(5120, 2048, 8, 2, (-1, 0, 1)),
}

GRID_NAMES = tuple(_CODEBOOKS)


@cache
def grid(name: str) -> NDArray[np.int8]:
    """The points of a codebook, (n_entries, 8 or 4) int8, read-only.

    Names are `GRID_NAMES`; iq1_m uses that of iq1_s.
    """
    book = _CODEBOOKS[name]
    n_digits = book.n_entries * book.n_weights
    n_bytes = n_digits * book.digit_bits // 8
    packed = np.frombuffer(_file_bytes(), np.uint8, n_bytes, book.start)
    shifts = np.arange(0, 8, book.digit_bits, dtype=np.uint8)
    digits = (packed[:, None] >> shifts) & np.uint8((1 << book.digit_bits) - 1)
    points: NDArray[np.int8] = np.array(book.levels, np.int8)[digits]
    points = points.reshape(book.n_entries, book.n_weights)
    points.flags.writeable = False
    return points


@cache
def sign_table() -> NDArray[np.int8]:
    """(128, 8) of 1 and -1: bit i of the number is the sign of weight i; the eighth sign makes
    the count of negative weights even."""
    numbers = np.arange(128, dtype=np.uint8)
    parity = np.bitwise_count(numbers) & np.uint8(1)
    bits = np.unpackbits((numbers | parity << np.uint8(7))[:, None], axis=1, bitorder="little")
    table = (1 - 2 * bits.astype(np.int8)).astype(np.int8)
    table.flags.writeable = False
    return table


@cache
def _file_bytes() -> bytes:
    return Path(__file__).with_name("_grids.bin").read_bytes()
