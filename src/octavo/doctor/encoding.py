"""The encoding of the terminal."""

from __future__ import annotations

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """Octavo writes UTF-8 whatever the system's encoding is; other programs may not read it so."""
    if facts.encoding.replace("-", "").replace("_", "") == "utf8":
        return Finding("ok", "UTF-8")
    if facts.platform == "win32":
        mend = "For pipes and files, run `chcp 65001` first, or set PYTHONUTF8=1."
    else:
        mend = "Set a UTF-8 locale: export LANG=C.UTF-8."
    return Finding(
        "note",
        f"the system's encoding is {facts.encoding}; Octavo writes UTF-8, so text that another "
        "program reads may look garbled",
        mend,
    )
