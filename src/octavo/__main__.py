"""The program: `python -m octavo`, and the console script `octavo`.

Here is what concerns the process as a whole; `octavo.cli` has the commands.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

STARTING_OBJECTS = 50_000  # new objects between two searches for garbage


def program() -> None:
    """Run the command that `sys.argv` names, and end the process.

    When threads have ended and all is saved and closed, the system takes the memory back at once:
    Python would take its objects apart one by one before.
    """
    status = 1  # of an error of ours, with its traceback

    def leave() -> None:
        with contextlib.suppress(OSError, ValueError):  # else Python ends and says why
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(leave)  # the first, so called last
    # A start makes many objects that stay: looking through them for garbage would only take time.
    gc.set_threshold(STARTING_OBJECTS, *gc.get_threshold()[1:])
    from octavo.cli import main  # here, as its imports are a large part of those objects

    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


if __name__ == "__main__":
    program()
