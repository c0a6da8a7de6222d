"""The tensor types of the GGUF format: number, name, and how many bytes a block takes.

Names are ggml's, in lower case; they are also the stems in `octavo.quants`. What the bits of a
block mean is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.errors import UnsupportedError


class GgmlType(NamedTuple):
    """One type: `block_elements` values along a row are stored in `block_bytes` bytes."""

    id: int
    name: str
    block_elements: int
    block_bytes: int

    def n_bytes(self, n_elements: int) -> int:
        """Bytes of `n_elements` values, a multiple of `block_elements`."""
        return n_elements // self.block_elements * self.block_bytes

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.block_bytes / self.block_elements


# (id, name, block elements, block bytes)
_TABLE = (
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (10, "q2_k", 256, 84),
    (11, "q3_k", 256, 110),
    (12, "q4_k", 256, 144),
    (13, "q5_k", 256, 176),
    (14, "q6_k", 256, 210),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
)

GGML_TYPES: dict[int, GgmlType] = {row[0]: GgmlType(*row) for row in _TABLE}

_BY_NAME = {t.name: t for t in GGML_TYPES.values()}

# Numbers that once had a meaning; files with them come from before the date of the removal.
_RETIRED = {
    4: "q4_2",
    5: "q4_3",
    31: "q4_0_4_4",
    32: "q4_0_4_8",
    33: "q4_0_8_8",
    36: "iq4_nl_4_4",
    37: "iq4_nl_4_8",
    38: "iq4_nl_8_8",
}

# Made while computing; a file should not hold them.
_INTERNAL = {9: "q8_1", 15: "q8_k"}

# In the format, but no model that this version runs uses them.
_UNREAD = {41: "q1_0", 42: "q2_0"}

# The ik_llama.cpp fork numbers its own types from here (iq2_k ... iq6_k, *_kt, *_r4, *_r8).
_FORK_FIRST_ID = 97

_OTHER_FILE = "Use a file with ordinary types, for example Q4_K_M, Q8_0 or IQ4_XS."


def by_name(name: str) -> GgmlType:
    """The type of that (lower-case) name.

    Raises:
        UnsupportedError: no type has this name.
    """
    if name not in _BY_NAME:
        raise UnsupportedError(
            f"There is no tensor type {name!r}", f"Known are: {', '.join(_BY_NAME)}."
        )
    return _BY_NAME[name]


def by_id(type_id: int, tensor: str) -> GgmlType:
    """The type with that number; `tensor` is named in the error.

    Raises:
        UnsupportedError: retired, internal, of a fork, or unknown; each with its own sentence.
    """
    known = GGML_TYPES.get(type_id)
    if known is not None:
        return known
    raise UnsupportedError(f"Tensor {tensor!r} has {_why_not(type_id)}", _OTHER_FILE)


def _why_not(type_id: int) -> str:
    if type_id in _RETIRED:
        return f"the type {_RETIRED[type_id]} (number {type_id}), which the GGUF format withdrew"
    if type_id in _INTERNAL:
        return f"the type {_INTERNAL[type_id]}, which is for intermediate results, not for files"
    if type_id in _UNREAD:
        return f"the type {_UNREAD[type_id]}, which this version cannot read"
    if type_id >= _FORK_FIRST_ID:
        return f"type number {type_id}, which only the ik_llama.cpp fork understands"
    return f"type number {type_id}, which is newer than this version of Octavo or damaged"
