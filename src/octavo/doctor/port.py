"""The port of the server."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """It must be free for `octavo serve` without --port."""
    if not facts.port_fault:
        return Finding("ok", f"port {facts.port} is free")
    mend = f"Choose another one: octavo serve MODEL --port {facts.port + 1}."
    if facts.port_fault == "taken":
        by = f" by {facts.port_holder}" if facts.port_holder else ""
        return Finding("note", f"port {facts.port} is taken{by}, perhaps by a server of ours", mend)
    return Finding("wrong", f"port {facts.port} cannot be used: {facts.port_fault}", mend)
