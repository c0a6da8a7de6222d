"""What is wrong on this machine, and how to mend it: one check a file, found by its name.

A check module has `check(facts) -> Finding`. It looks at nothing but the facts, so that tests make
them up; `_facts.collect` looks at the machine. Private modules are no checks.
"""

from __future__ import annotations

from octavo import registry
from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def examine(facts: Facts) -> dict[str, Finding]:
    """Name of each check -> what it found, in the order of names."""
    return {name: registry.find("doctor", name, "check").check(facts) for name in checks()}


def checks() -> tuple[str, ...]:
    """Names of all checks."""
    return registry.names("doctor")
