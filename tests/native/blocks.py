"""Writes random blocks of every format with their weights, for check_formats.cpp.

A record: name (16 bytes), rows, columns, bytes of data (3 int32), the data, the float32 weights.
"""

import sys
from pathlib import Path

import numpy as np

from octavo import quants

ROWS = 7


def record(name: str, rng: np.random.Generator) -> bytes:
    form = quants.get(name)
    columns = max(form.block_elements, 288 // form.block_elements * form.block_elements)
    data = quants.random_blocks(name, ROWS * columns // form.block_elements, rng, 0.5)
    weights = quants.unpack(name, data, (ROWS, columns))
    head = name.encode().ljust(16, b"\0") + np.array([ROWS, columns, data.size], "<i4").tobytes()
    return head + data.tobytes() + weights.tobytes()


def main() -> None:
    rng = np.random.default_rng(11)
    Path(sys.argv[1]).write_bytes(b"".join(record(name, rng) for name in quants.names()))


if __name__ == "__main__":
    main()
