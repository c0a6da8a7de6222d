"""Serve a model over HTTP, for clients of OpenAI's, Anthropic's and llama.cpp's APIs.

It listens at once; until the model is loaded it answers 503. Ctrl-C stops it when running
answers have ended, or after --stop-seconds.
"""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import LoadFlags, Model, byte_size
from octavo.errors import NotFoundError, SettingError
from octavo.record import dataclass
from octavo.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from octavo.plan.plan import Plan
    from octavo.server.fleet import Fleet
    from octavo.server.guard import Rules
    from octavo.server.resident import Report, Resident
    from octavo.session import Session

BACKLOG = 256  # connections that may wait to be taken
KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections


@dataclass
class ServeFlags:
    """Where to listen, and to whom."""

    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0: any free one.")
    ] = 8080
    alias: Annotated[str | None, typer.Option("--alias", help="Name of the model for clients.")] = (
        None
    )
    api_key: Annotated[
        list[str] | None,
        typer.Option("--api-key", help="Ask for this key; repeatable. Better: OCTAVO_API_KEY."),
    ] = None
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="File with keys, one a line.")
    ] = None
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="Name by which clients may call; repeatable."),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="Web page that may read answers; repeatable."),
    ] = None
    more_models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME=PATH", help="Another model, loaded on demand; repeatable."
        ),
    ] = None
    models_dir: Annotated[
        Path | None,
        typer.Option("--models-dir", help="Folder whose GGUF files are loaded on demand."),
    ] = None
    max_memory: Annotated[
        int | None,
        typer.Option(
            "--max-memory",
            parser=byte_size,
            metavar="SIZE",
            help="Most memory of all models together: 24GB.  [default: what is free]",
        ),
    ] = None
    slot_save_path: Annotated[
        Path | None,
        typer.Option(
            "--slot-save-path",
            exists=True,
            file_okay=False,
            help="Folder where clients may save slots.",
        ),
    ] = None
    max_queue: Annotated[
        int, typer.Option("--max-queue", min=0, help="Requests that may wait; more get 429.")
    ] = 64
    max_body_mib: Annotated[
        int, typer.Option("--max-body-mib", min=1, help="Largest request body.")
    ] = 32
    body_seconds: Annotated[
        int, typer.Option("--body-seconds", min=1, help="Time for a request body to arrive.")
    ] = 60
    stable_prompts: Annotated[
        bool,
        typer.Option(
            "--stable-prompts/--no-stable-prompts",
            help="Drop headers that always change, put back thinking that clients leave out.",
        ),
    ] = True
    stop_seconds: Annotated[
        int, typer.Option("--stop-seconds", min=0, help="Time for answers to end when stopping.")
    ] = 30


def main(model: Model, serve: ServeFlags, load: LoadFlags) -> None:
    """The command."""
    import uvicorn

    from octavo.server.app import make_app
    from octavo.server.guard import check_address

    settings = Settings.from_environment()
    rules = _rules(serve, settings)
    check_address(serve.host, rules.keys)
    fleet = _fleet(model, serve, load, settings)
    listener = _listen(serve.host, serve.port)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("octavo").setLevel(logging.INFO)
    config = uvicorn.Config(
        make_app(fleet, rules, serve.slot_save_path),
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=serve.stop_seconds,
    )
    server = uvicorn.Server(config)
    first = fleet.first
    first.on_end_of_loading = lambda: _after_loading(first, server)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    screen.note(f"listening on http://{shown}:{port}, loading {model}")
    server.run([listener])
    if not first.was_ready and first.error is not None:
        raise first.error


def _after_loading(first: Resident, server: uvicorn.Server) -> None:
    """Say that it can begin; without the first model there is nothing to go on for."""
    if first.state == "failed" and not first.was_ready:
        server.should_exit = True
    elif first.state == "ready":
        plan = first.session.plan
        screen.note(f"ready: {first.name}, {plan.sequences} x {plan.context:,} tokens of context")


def _fleet(model: str, serve: ServeFlags, load: LoadFlags, settings: Settings) -> Fleet:
    """The models of the command line. What nothing is called is told before anyone can call."""
    from octavo.hub.local import find_kept
    from octavo.server.conversations import Conversations
    from octavo.server.fleet import Fleet
    from octavo.server.resident import Resident

    named = {serve.alias or model_name(model): model}
    for text in serve.more_models or ():
        name, equals, place = text.partition("=")
        if not equals or not name or not place:
            raise SettingError(f"--model is {text!r}", "Write it as NAME=PATH.")
        if name in named:
            raise SettingError(f"two models are called {name!r}", "Give each its own name.")
        named[name] = place
    for path in _models_in(serve.models_dir):
        named.setdefault(path.stem, str(path))
    for place in named.values():
        find_kept(place, settings)
    sources = {name: _Source(place, load, place == model) for name, place in named.items()}
    return Fleet(
        [
            Resident(
                source.load,
                name,
                measure=source.measure,
                max_waiting=serve.max_queue,
                conversations=Conversations(mends=serve.stable_prompts),
            )
            for name, source in sources.items()
        ],
        serve.max_memory,
    )


def _models_in(folder: Path | None) -> list[Path]:
    """The models of a folder: of a set of shards the first."""
    if folder is None:
        return []
    if not folder.is_dir():
        raise NotFoundError(f"{folder} is no folder", "Give --models-dir a folder of GGUF files.")
    from octavo.gguf.shards import shard_place

    found = []
    for path in sorted(folder.glob("*.gguf")):
        place = shard_place(path)
        if place is None or place[1] == 1:
            found.append(path)
    return found


@dataclass(frozen=True)
class _Source:
    """Where a model comes from. All but the first get a context of at most what they know."""

    model: str
    flags: LoadFlags
    is_first: bool

    def measure(self, report: Report, room_bytes: int | None) -> Plan:
        """The plan for so much memory; a model that is not here yet is fetched."""
        from octavo.loading import locate, plan_for

        files = screen.FileSum(lambda done, total: report("fetching", done, total))
        path = locate(self.model, files)
        own = self._wishes()
        for name in ("cache_dir", "cache_dir_bytes"):
            own.pop(name, None)
        return plan_for(path, room_bytes=room_bytes, **own)

    def load(self, report: Report, plan: Plan | None) -> Session:
        """The model, by this plan."""
        from octavo.loading import load

        def advance(done: int, total: int) -> None:
            report("loading", done, total)

        return load(self.model, progress=advance, plan=plan, **self._wishes())

    def _wishes(self) -> dict[str, Any]:
        wishes = self.flags.wishes()
        if not self.is_first and "context" in wishes:
            from octavo.gguf.reader import open_gguf
            from octavo.loading import locate
            from octavo.models import read_config

            with open_gguf(locate(self.model)) as file:
                known = read_config(file.metadata).context_length
            wishes["context"] = min(wishes["context"], known)
        return wishes


def _rules(serve: ServeFlags, settings: Settings) -> Rules:
    from octavo.server.guard import Rules

    keys = [*(serve.api_key or ()), *_keys_of(serve.api_key_file)]
    keys = keys or [key for key in (settings.api_key,) if key]
    return Rules(
        keys=tuple(keys),
        hosts=tuple(name.lower() for name in serve.allowed_host or ()),
        origins=tuple(serve.allow_origin or ()),
        max_body_bytes=serve.max_body_mib << 20,
        body_seconds=serve.body_seconds,
    )


def _keys_of(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(f"{path} cannot be read: {error}", "Give a text file.") from error
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise SettingError(f"{path} holds no key", "Write one key a line.")
    return keys


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a wrong address is told at once and nobody is turned away."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            "Choose another --port or --host.",
        ) from error
    return listener


def model_name(model: str) -> str:
    """What clients call the model: the alias, or the name of the file."""
    path = Path(model)
    return path.stem if path.suffix.lower() == ".gguf" or path.exists() else model
