"""Power plans, batteries and frequency governors that slow the processor down."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding

# Under these drivers, "powersave" is the usual setting and does not hold the clock down.
_OWN_POWERSAVE = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")


def check(facts: Facts) -> Finding:
    """Generation is slowed by each of them."""
    if facts.is_power_saver:
        return Finding(
            "note",
            "Windows' power saver is on",
            "Choose Balanced or High performance: powercfg /setactive SCHEME_MIN.",
        )
    if facts.on_battery:
        return Finding("note", "the computer runs on its battery", "Plug it in for full speed.")
    if facts.governor == "powersave" and facts.frequency_driver not in _OWN_POWERSAVE:
        return Finding(
            "note",
            "the frequency governor powersave keeps the processor at its lowest clock",
            "sudo cpupower frequency-set -g schedutil (or performance).",
        )
    if facts.energy_preference == "power":
        return Finding(
            "note",
            "the processor prefers saving energy to speed",
            "powerprofilesctl set balanced, or write balance_performance to "
            "energy_performance_preference.",
        )
    return Finding("ok", facts.governor or "nothing slows the processor down")
