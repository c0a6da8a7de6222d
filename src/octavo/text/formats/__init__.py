"""Tool-call dialects: how a family of models writes that it wants a function called.

One dialect is one module; its stem is its name. It defines `dialect(source)`: what there is to
know of it, or None if a chat template of that text does not speak it. Names with an underscore
are what the dialects share.
"""

from __future__ import annotations

from octavo import registry
from octavo.text.formats._dialect import Dialect


def of_template(source: str) -> Dialect | None:
    """The dialect that a chat template asks the model to speak; None: none that is known."""
    for stem in registry.names("text.formats"):
        found: Dialect | None = registry.find("text.formats", stem, "Tool-call dialect").dialect(
            source
        )
        if found is not None:
            return found
    return None
