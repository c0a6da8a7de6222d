"""Finding things by file name: the only discovery code.

An architecture, block format, cache format, tool-call dialect or command is one module in a
package; its stem is its name. Adding one adds a file and edits no list.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from octavo.errors import UnsupportedError


@cache
def names(package: str) -> tuple[str, ...]:
    """Stems of the modules in `octavo.<package>`, sorted; private ones (`_x`) are left out."""
    parent = importlib.import_module(f"octavo.{package}")
    found = (m.name for m in pkgutil.iter_modules(parent.__path__))
    return tuple(sorted(n for n in found if not n.startswith("_")))


def find(package: str, stem: str, kind: str) -> ModuleType:
    """Import `octavo.<package>.<stem>`.

    Raises:
        UnsupportedError: no such module; the message lists those there are. `kind` is the word
            for the user ("architecture", "block format").
    """
    if stem not in names(package):
        known = ", ".join(names(package))
        raise UnsupportedError(f"{kind} {stem!r} is not supported", f"Supported are: {known}.")
    return importlib.import_module(f"octavo.{package}.{stem}")
