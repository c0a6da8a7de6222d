"""Show what a model would take of this computer, before anything is loaded.

Which weights are copied or mapped, which context fits, how many bytes each part takes, and why.
"""

from __future__ import annotations

from octavo.cli import _screen as screen
from octavo.cli._options import Json, LoadFlags, Model


def main(
    load: LoadFlags,
    model: Model,
    json_output: Json = False,
) -> None:
    """The command."""
    from octavo.gguf.reader import open_gguf
    from octavo.hub.local import find_local
    from octavo.plan.hardware import fast_formats, probe
    from octavo.plan.planner import Wishes, make_plan
    from octavo.settings import Settings

    wishes = Wishes(
        context=load.context,
        sequences=load.sequences,
        batch=load.batch,
        cache_format=load.cache_format,
        weights=load.weights,
        draft_tokens=0 if load.speculate == "off" else None,
        threads=load.threads,
    )
    with open_gguf(find_local(model, Settings.from_environment())) as file:
        plan = make_plan(file, wishes, probe(), fast_formats())
    if json_output:
        screen.emit(plan.as_dict())
    else:
        screen.write(f"{plan.table()}\n")
