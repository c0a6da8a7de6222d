"""Devices that kernels are compiled for without being here."""

from __future__ import annotations

# As Triton names them: (back end, architecture, threads of a warp); bytes of shared memory that a
# program may have.
TARGETS: dict[str, tuple[tuple[str, int | str, int], int]] = {
    "cuda:75": (("cuda", 75, 32), 65536),
    "cuda:89": (("cuda", 89, 32), 101376),
    "cuda:90": (("cuda", 90, 32), 232448),
    "hip:gfx1100": (("hip", "gfx1100", 32), 65536),
    "hip:gfx90a": (("hip", "gfx90a", 64), 65536),
}
