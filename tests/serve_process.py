"""`octavo serve` as a process of its own, as a user starts it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Serving:
    """A running server. `lines` are those of its log so far."""

    pid: int = 0
    address: str = ""
    lines: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serve_process(model: Path, *flags: str) -> Iterator[Serving]:
    """A server that is ready, on a free port; at the end it is stopped as with Ctrl-C."""
    command = [sys.executable, "-m", "octavo", "serve", str(model), "--port", "0", "-t", "1"]
    serving = Serving()
    ready = threading.Event()
    with subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True) as process:
        serving.pid = process.pid

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                serving.lines.append(line)
                found = re.search(r"listening on (http://[^,\s]+)", line)
                serving.address = found[1] if found else serving.address
                if line.startswith("ready"):
                    ready.set()
            ready.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert ready.wait(60), "the server did not become ready"
            assert process.poll() is None, "".join(serving.lines)
            yield serving
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
            reader.join()
        assert code in (0, 130), "".join(serving.lines)
