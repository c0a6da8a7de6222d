"""From the name of a model to a `Session`: finds the file, has it planned, and loads it.

Imports are most of a start, and only one thread at a time can run Python. So the file is opened
first, and what stands inside of functions here is imported while threads of native code read the
vocabulary, then the weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import SettingError
from octavo.gguf.reader import GGUFFile, open_gguf
from octavo.settings import Settings

if TYPE_CHECKING:
    from octavo.engine.loader import Progress
    from octavo.engine.speculative import Source
    from octavo.ops.backend import Backend
    from octavo.plan.plan import Plan
    from octavo.plan.planner import Wishes
    from octavo.session import Session

FileProgress = Callable[[str, int, int | None], None]
CACHE_DIR_BYTES = 8 << 30

_SOURCES: Mapping[str, frozenset[Source]] = {
    "auto": frozenset({"mtp", "lookup"}),
    "mtp": frozenset({"mtp"}),
    "lookup": frozenset({"lookup"}),
    "off": frozenset(),
}


def load(
    model: str | Path,
    *,
    speculate: str = "auto",
    backend: str = "cpu",
    progress: Progress | None = None,
    plan: Plan | None = None,
    cache_dir: str | Path | None = None,
    cache_dir_bytes: int = CACHE_DIR_BYTES,
    **wishes: Any,
) -> Session:
    """Load a model. A name that is not a path is fetched if it is not here yet.

    Args:
        model: alias ("demo"), path of a GGUF file or of a folder with one, or repository name
            ("hf:owner/repo:Q4_K_M").
        speculate: how tokens are guessed ahead: "mtp" by the file's own head, "lookup" in the
            text so far, "auto" whichever pays, or "off". The output is the same.
        backend: "cpu"; "gpu": on the graphics card, all of it or, of a model with experts, all but
            most of these, which needs `octavo[gpu]`; or "reference": plain NumPy, for comparisons,
            very slow.
        progress: called with (bytes done, bytes in all) while weights are read.
        plan: what `plan_for` made of the same arguments; None: one is made now.
        cache_dir: folder where computed prompts are kept for the next start; None: nowhere.
        cache_dir_bytes: most that the files in it take.
        wishes: fields of `Wishes`: context, sequences, batch, cache_format, weights, threads ...
            What is not given is chosen by the planner.

    Raises:
        NotFoundError, DownloadError: the model cannot be had.
        FileFormatError, UnsupportedError: it is no model that this version can run.
        SettingError, MemoryPlanError: a wish is wrong, or does not fit.
    """
    path, sources = locate(model), _draft_sources(speculate)
    folder = Path(cache_dir).expanduser() if cache_dir is not None else None
    keep = (folder, cache_dir_bytes) if folder is not None else None
    with open_gguf(path) as file, ThreadPoolExecutor(2, "octavo-load") as pool:
        from octavo.text.tokenizer import Tokenizer

        tokenizer = pool.submit(Tokenizer.prepared, file.metadata)
        operations, asked = _backend(backend), _wishes(wishes, speculate, backend)
        made = plan or _planned(file, asked, operations)
        if (made.placement == "cpu") == (backend == "gpu"):
            raise SettingError(
                f"The placement {made.placement} does not go with the device {backend}",
                "Leave the placement out, or use split or gpu with --device gpu.",
            )
        _set_limits(operations, made)
        from octavo.engine.loader import load_model

        weights = pool.submit(load_model, file, made, operations, progress)
        from octavo.session import Session

        return Session(file, made, operations, sources, weights, tokenizer, keep)


def _planned(file: GGUFFile, asked: Wishes, operations: Backend) -> Plan:
    from octavo.plan.hardware import probe, probe_processor
    from octavo.plan.planner import make_plan

    # A plan for the processor asks no driver for its cards.
    look = probe if asked.placement else probe_processor
    return make_plan(file, asked, look(), _fast_formats(operations))


def plan_for(
    model: str | Path,
    *,
    room_bytes: int | None = None,
    speculate: str = "auto",
    backend: str = "cpu",
    **wishes: Any,
) -> Plan:
    """The plan that `load` would follow, for `room_bytes` of main memory; None: what is free now.

    Raises: as `load`.
    """
    from octavo.plan.hardware import probe
    from octavo.plan.planner import make_plan

    operations, asked = _backend(backend), _wishes(wishes, speculate, backend)
    fast, hardware = _fast_formats(operations), probe()
    with open_gguf(locate(model)) as file:
        if room_bytes is None:
            return make_plan(file, asked, hardware, fast)
        # The plan leaves some of what is available to the system: it comes on top of the room.
        ample = replace(hardware, available_bytes=1 << 60)
        reserve_bytes = make_plan(file, asked, ample, fast).reserve_bytes
        limited = replace(hardware, available_bytes=room_bytes + reserve_bytes)
        return make_plan(file, asked, limited, fast)


def locate(model: str | Path, progress: FileProgress | None = None) -> Path:
    """The file or folder that a name means, fetched if it is not here yet.

    `progress` is called with (file, bytes done, bytes in all or None) while it is fetched.

    Raises:
        NotFoundError, DownloadError: it cannot be had.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    from octavo.hub.resolve import resolve  # takes long to import: only where a name is no path

    return resolve(str(model), Settings.from_environment(), progress)


def _wishes(given: Mapping[str, Any], speculate: str, backend: str) -> Wishes:
    from octavo.plan.planner import Wishes

    unknown = given.keys() - Wishes.__dataclass_fields__.keys()
    if unknown:
        raise SettingError(
            f"load() does not know {', '.join(sorted(unknown))}",
            f"It knows {', '.join(Wishes.__dataclass_fields__)}.",
        )
    draft = {"draft_tokens": 0} if speculate == "off" else {}
    place = {"placement": "card"} if backend == "gpu" else {}
    return Wishes(**(draft | place | dict(given)))


def _backend(name: str) -> Backend:
    if name not in ("cpu", "gpu", "reference"):
        raise SettingError(f"There is no back end {name!r}", "Use cpu, gpu or reference.")
    return importlib.import_module(f"octavo.ops.{name}")


def _set_limits(backend: Backend, plan: Plan) -> None:
    """What of the plan is the back end's own: its threads, its share of a card."""
    if plan.placement == "split":
        _backend("cpu").set_threads(plan.threads)  # type: ignore[attr-defined]
    elif hasattr(backend, "set_threads"):
        backend.set_threads(plan.threads)
    if plan.video is not None and hasattr(backend, "limit_memory"):
        backend.limit_memory(plan.video.limit_bytes - plan.video.context_bytes)


def _fast_formats(backend: Backend) -> Collection[str]:
    find: Callable[[], Collection[str]] = getattr(backend, "fast_formats", tuple)
    return find()


def _draft_sources(speculate: str) -> frozenset[Source]:
    if speculate not in _SOURCES:
        raise SettingError(f"speculate is {speculate!r}", f"Use one of: {', '.join(_SOURCES)}.")
    return _SOURCES[speculate]
