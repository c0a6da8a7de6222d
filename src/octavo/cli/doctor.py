"""Say what is wrong on this computer, and how to mend it.

Each line is one check: ok, note (works, but worse than it could) or wrong (something will fail).
Ends with 1 if something is wrong. The first run measures memory, which takes about a second.
"""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json


def main(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="To look for.")] = 8080,
    json_output: Json = False,
) -> None:
    """The command."""
    from dataclasses import asdict

    from octavo.doctor import examine
    from octavo.doctor._facts import collect

    findings = examine(collect(port))
    n_wrong = sum(finding.level == "wrong" for finding in findings.values())
    if json_output:
        rows = [{"check": name} | asdict(finding) for name, finding in findings.items()]
        screen.emit({"findings": rows, "wrong": n_wrong})
    else:
        for name, finding in findings.items():
            screen.write(f"{finding.level:<6} {name.replace('_', ' '):<12} {finding.text}\n")
            if finding.mend:
                screen.write(f"{'':<19} -> {finding.mend}\n")
    if n_wrong:
        raise typer.Exit(1)
