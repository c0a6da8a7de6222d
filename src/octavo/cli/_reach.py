"""A server as a command finds it: does it answer, what does it serve; and starting one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from octavo.errors import NotFoundError, OctavoError, SettingError
from octavo.record import dataclass

ANSWER_SECONDS = 10
END_SECONDS = 5.0
POLL_SECONDS = 0.25
STOP_SECONDS = 40  # `serve` gives running answers 30
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOG_LINES = 5  # of a server that ended, in the message


@dataclass(frozen=True)
class Place:
    """Where a server is (no slash at the end), and the key that it may ask for."""

    address: str
    key: str = field(default="", repr=False)

    def ask(
        self, path: str, body: Mapping[str, Any] | None = None, seconds: float = ANSWER_SECONDS
    ) -> tuple[int, Any]:
        """One request. -> status and the JSON of the answer; 0 and None if nothing listens.

        Raises:
            NotFoundError: what answers sends no JSON.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        opener = build_opener(ProxyHandler({}))  # a proxy would look for it on another computer
        request = Request(self.address + path, data, headers)
        try:
            with opener.open(request, timeout=seconds) as answer:
                status, text = answer.status, answer.read()
        except HTTPError as error:
            with error:
                status, text = error.code, error.read()
        except (URLError, OSError):
            return 0, None
        try:
            return status, json.loads(text)
        except ValueError:
            raise NotFoundError(
                f"what answers at {self.address} is no model server",
                "Give the address of one with --address, or another free port.",
            ) from None

    def is_there(self) -> bool:
        """Whether a server listens, ready or not."""
        return self.ask("/health")[0] != 0

    def wait(self, seconds: float, process: subprocess.Popen[bytes] | None = None) -> None:
        """Until the model is loaded, or `process` has ended.

        Raises:
            OctavoError: it could not be loaded, or it takes longer.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and (process is None or process.poll() is None):
            status, answer = self.ask("/health")
            if status == 200:
                return
            if status not in (0, 503) or (status == 0 and process is None):
                if process is not None and _ends(process):
                    return  # it said why before it ended; so does its log
                raise NotFoundError(f"{self.address}/health: {_message(status, answer)}")
            time.sleep(POLL_SECONDS)
        if process is None or process.poll() is None:
            raise OctavoError(
                f"{self.address} was not ready after {seconds:.0f} seconds",
                "Give it more time with --wait.",
            )

    def models(self) -> dict[str, int | None]:
        """Names of the models, the first first, and the context of each that is loaded.

        Raises:
            SettingError: the key is wrong.
        """
        status, answer = self.ask("/v1/models")
        if status in (401, 403):
            raise SettingError(
                f"{self.address} refused the key: {_message(status, answer)}",
                "Set OCTAVO_API_KEY to the key that the server was started with.",
            )
        if status != 200:
            raise NotFoundError(f"{self.address}/v1/models: {_message(status, answer)}")
        return {entry["id"]: entry.get("meta", {}).get("n_ctx") for entry in answer["data"]}

    def load(self, model: str, seconds: float) -> None:
        """Have a model loaded, and wait for it.

        Raises:
            OctavoError: it cannot be.
        """
        status, answer = self.ask("/v1/models/load", {"model": model, "wait": True}, seconds)
        if status != 200:
            raise OctavoError(f"{model} could not be loaded: {_message(status, answer)}")


def _message(status: int, answer: Any) -> str:
    """What an error answer says."""
    error = answer.get("error") if isinstance(answer, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    return str(said or (f"status {status}" if status else "no answer"))


def serve_command(place: Place, model: str, context: int | None) -> list[str]:
    """The command that serves `model` at `place`.

    Raises:
        SettingError: the address is not of this computer.
    """
    parts = urlsplit(place.address)
    if parts.scheme != "http" or parts.hostname not in LOOPBACK or parts.path:
        raise SettingError(
            f"no server can be started at {place.address}",
            "Give --address one of this computer, such as http://127.0.0.1:8080.",
        )
    command = [sys.executable, "-m", "octavo", "serve", model]
    command += ["--host", parts.hostname, "--port", str(parts.port or 80)]
    return command + (["--ctx-size", str(context)] if context else [])


def _ends(process: subprocess.Popen[bytes]) -> bool:
    """Whether a server whose model could not be loaded ends, as it should."""
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextlib.contextmanager
def started(
    command: list[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that runs while the block does; it writes to `log`.

    Ctrl-C in the terminal is for the client and does not reach it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            **apart,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_of(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
