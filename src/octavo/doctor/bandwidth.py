"""The speed of memory, which bounds how fast tokens are generated."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding

_SLOW = 18e9  # one module of DDR4-2400 gives less


def check(facts: Facts) -> Finding:
    """Slow memory is most often one module where two would work side by side."""
    speeds = facts.hardware.speeds
    if speeds is None:
        return Finding("ok", "not measured, there is no native core")
    rate = speeds.read_bytes_per_second
    said = f"memory is read at {rate / 1e9:.0f} GB/s by {facts.hardware.n_threads} threads"
    if rate < _SLOW:
        return Finding(
            "note",
            f"{said}, which is little",
            "If only one memory module is fitted, a second one nearly doubles it. If other "
            "programs were busy when it was measured, delete speeds.json in the cache folder.",
        )
    return Finding("ok", said)
