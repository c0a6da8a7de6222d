"""Run a coding agent on a model of this computer: Claude Code, Codex or OpenCode.

It is told of the server for this run only; its own configuration is left alone. What follows
`--` is for the agent: octavo launch claude -- -p "Hello". With --start MODEL a server is started
if none answers, and stopped when the agent ends.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Annotated, NoReturn

import typer

from octavo.cli import _screen as screen
from octavo.cli._clients import CLIENTS, Client, ClientName, Setup, Target
from octavo.cli._reach import Place, end_of, serve_command, started
from octavo.cli.serve import model_name
from octavo.errors import NotFoundError, OctavoError
from octavo.record import dataclass
from octavo.settings import Settings, environment

NO_KEY = "octavo"  # clients insist on some key; a server that has none ignores it
_OWN_KEY = '"$OCTAVO_API_KEY"'  # keys are not printed
ROOMY_TOKENS = 65_536  # prompts of agents begin with up to 20,000 tokens


@dataclass
class LaunchFlags:
    """Which server, which model, and whether to run at all."""

    address: Annotated[str, typer.Option("--address", help="Where the server is, or shall be.")] = (
        "http://127.0.0.1:8080"
    )
    model: Annotated[
        str | None,
        typer.Option("--model", help="Its name at the server.  [default: the server's first]"),
    ] = None
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="MODEL", help="Serve this model if no server answers."),
    ] = None
    context: Annotated[
        int | None,
        typer.Option("--ctx-size", min=1, help="Context of a server that is started, in tokens."),
    ] = None
    wait: Annotated[
        float, typer.Option("--wait", min=1, help="Seconds for a server to be ready.")
    ] = 600
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be set and run; do nothing.")
    ] = False


def main(
    client: Annotated[
        ClientName, typer.Argument(metavar="CLIENT", help="claude, codex or opencode.")
    ],
    flags: LaunchFlags,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENT...]", help="For the agent.")
    ] = None,
) -> None:
    """The command."""
    settings = Settings.from_environment()
    known = CLIENTS[client]
    program = shutil.which(client)
    if program is None and not flags.dry_run:
        raise NotFoundError(
            f"{known.title} is not installed: there is no program {client.value!r} in the PATH",
            f"Install it with: {known.install}",
        )
    place = Place(flags.address.rstrip("/"), settings.api_key)
    if not place.is_there() and flags.start is None:
        raise NotFoundError(
            f"no server answers at {place.address}",
            "Start one with `octavo serve MODEL`, or let this do it with --start MODEL.",
        )
    if flags.dry_run:
        _show(client, known, place, flags, arguments or [])
        return
    with _terminated_is_exit(), _server(place, flags, settings):
        target = _target(place, flags)
        _warn(target)
        setup = known.setup(target)
        code = _run([str(program), *setup.arguments, *(arguments or [])], setup)
    raise typer.Exit(code)


@contextlib.contextmanager
def _server(place: Place, flags: LaunchFlags, settings: Settings) -> Iterator[None]:
    """One that is ready: the one that is there, or one that runs while the block does."""
    if place.is_there():
        place.wait(flags.wait)
        yield
        return
    assert flags.start is not None
    log = settings.cache_dir / "launch-serve.log"
    command = serve_command(place, flags.start, flags.context)
    screen.note(f"starting a server with {flags.start}; its log is {log}")
    with started(command, environment({}), log) as process:
        place.wait(flags.wait, process)
        if process.poll() is not None:
            raise OctavoError(f"the server ended while it started:\n{end_of(log)}")
        yield


def _target(place: Place, flags: LaunchFlags) -> Target:
    """The model to use, loaded.

    Raises:
        NotFoundError: the server has none of this name.
    """
    models = place.models()
    name = _chosen(models, flags, place)
    if models[name] is None:
        place.load(name, flags.wait)
        models = place.models()
    return Target(place.address, name, models[name], place.key or NO_KEY)


def _chosen(models: dict[str, int | None], flags: LaunchFlags, place: Place) -> str:
    name = flags.model or next(iter(models))
    if name not in models:
        raise NotFoundError(
            f"{place.address} has no model {name!r}", f"It has {', '.join(models)}."
        )
    return name


def _warn(target: Target) -> None:
    if target.context is not None and target.context < ROOMY_TOKENS:
        screen.note(
            f"{target.model} has a context of {target.context:,} tokens. Agents fill that soon: "
            f"give the server --ctx-size {ROOMY_TOKENS} if memory allows it."
        )


def _run(command: list[str], setup: Setup) -> int:
    """The client on this terminal. -> its exit code; 128 + signal where one ended it."""
    # Ctrl-C is the client's. A handler is not inherited by it, as SIG_IGN would be.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        code = subprocess.call(command, env=environment(setup.variables, setup.unset))
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _terminated_is_exit() -> Iterator[None]:
    """While the block runs, a closed terminal and `kill` end it as Ctrl-C does: blocks are left."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(
    client: ClientName, known: Client, place: Place, flags: LaunchFlags, arguments: list[str]
) -> None:
    """The run as lines for a shell."""
    if place.is_there():
        models = place.models()
        name = _chosen(models, flags, place)
        context = models[name]
    else:
        assert flags.start is not None
        name, context = flags.model or model_name(flags.start), None
        command = serve_command(place, flags.start, flags.context)
        screen.write(f"# until the client ends: {shlex.join(command)}\n")
    if context is None:
        screen.write("# besides, the sizes of context and answers, known when it is loaded\n")
    setup = known.setup(Target(place.address, name, context, place.key or NO_KEY))
    lines = [f"unset {name}" for name in setup.unset]
    for variable, value in setup.variables.items():
        is_key = bool(place.key) and value == place.key
        lines.append(f"export {variable}={_OWN_KEY if is_key else shlex.quote(value)}")
    lines.append(shlex.join([client.value, *setup.arguments, *arguments]))
    screen.write("\n".join(lines) + "\n")
