"""All models that a server knows by name: loaded when asked for, given up when room is short.

One thread at a time loads; those that are loaded go on serving meanwhile. How many bytes a model
takes is what its plan says.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence

from octavo.errors import MemoryPlanError
from octavo.plan.memory import text
from octavo.plan.plan import Plan
from octavo.server.faults import Fault, RefusedError
from octavo.server.resident import Resident, Tally

LOG = logging.getLogger("octavo.fleet")

WAIT_SECONDS = 300.0  # how long a request waits for its model to be loaded
_POLL_SECONDS = 0.005


class Fleet:
    """Models by their names.

    Args:
        residents: the first is loaded at the start and answers requests that name no model.
        max_bytes: most memory of all loaded models; None: what the first model's plan may use.
    """

    def __init__(self, residents: Sequence[Resident], max_bytes: int | None = None) -> None:
        self.first = residents[0]
        self.max_bytes = max_bytes
        self.tally = Tally({})
        self.n_evicted = 0
        self._residents = {resident.name: resident for resident in residents}
        self._turn = threading.Lock()  # held while a model is loaded
        self._has_started = False  # the first model is there
        for resident in residents:
            resident.tally = self.tally

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._residents.values())

    def __len__(self) -> int:
        return len(self._residents)

    @property
    def held_bytes(self) -> int:
        """Bytes of the loaded models, as planned."""
        return sum(resident.n_bytes for resident in self)

    def find(self, name: str | None) -> Resident:
        """The model that a request means. The only one answers to every name.

        Raises:
            RefusedError: several are known, and none is called so (404).
        """
        if not name or len(self) == 1:
            return self.first
        if name not in self._residents:
            known = ", ".join(self._residents)
            fault = Fault(404, f"the model {name!r} is not here; there are {known}", "model")
            raise RefusedError(fault)
        return self._residents[name]

    def start(self) -> None:
        """Begin to load the first model; returns at once."""
        self.load(self.first)

    def load(self, resident: Resident) -> None:
        """Begin to load a model, unless it is loaded or being loaded; returns at once."""
        if resident.begin():
            name = f"octavo-load-{resident.name}"
            threading.Thread(target=self._load, args=(resident,), name=name, daemon=True).start()

    async def awaken(self, resident: Resident) -> None:
        """Load a model that a request is for, and wait for it.

        Not while the server itself is starting: what needs the first model then gets 503.
        """
        if resident.state == "ready" or not self._has_started:
            return
        self.load(resident)
        end = time.monotonic() + WAIT_SECONDS
        while resident.state == "loading" and time.monotonic() < end:
            await asyncio.sleep(_POLL_SECONDS)

    def unload(self, resident: Resident, *, even_busy: bool = False) -> None:
        """Give a model up; it is loaded again when it is asked for.

        Raises:
            RefusedError: it is being loaded, or it answers requests and may not be interrupted
                (409).
        """
        if resident.state in ("unloaded", "failed"):
            return
        if not resident.retire(even_busy=even_busy):
            doing = "is being loaded" if resident.state == "loading" else "answers requests"
            raise RefusedError(Fault(409, f"the model {resident.name!r} {doing}"))

    def close(self) -> None:
        """End everything. What is being loaded is given up when it is there."""
        for resident in self:
            resident.close()

    # From here on: on a loading thread.

    def _load(self, resident: Resident) -> None:
        with self._turn:
            began, evicted = time.perf_counter(), list[Resident]()
            try:
                plan = self._make_room(resident, evicted)
                resident.fill(plan)
            except Exception as error:
                lacks_memory = isinstance(error, MemoryPlanError)
                are_busy = any(other.n_bytes and not other.is_idle for other in self)
                resident.fail(error, is_passing=lacks_memory and are_busy)
                LOG.warning("model %s: %s", resident.name, resident.error)
                for other in reversed(evicted):  # as it was
                    self.load(other)
            else:
                self._has_started = True
                seconds = time.perf_counter() - began
                LOG.info("model %s: loaded in %.2f s", resident.name, seconds)
        resident.on_end_of_loading()

    def _make_room(self, resident: Resident, evicted: list[Resident]) -> Plan | None:
        """The plan of a model, and room for it: idle models go, least recently used first.

        Nothing goes before it is known that the model can be had at all.

        Raises:
            MemoryPlanError: it does not fit beside those that are busy.
        """
        idle = sorted((r for r in self if r.is_idle), key=lambda r: r.last_used)
        for n in range(len(idle) + 1):
            is_last = n == len(idle)
            try:
                plan = _plan(resident, self._room(without=idle[:n]))
            except MemoryPlanError:
                if is_last:
                    raise
                continue
            if plan is not None and not plan.fits and not is_last:
                continue
            if not all(other.retire() for other in idle[:n]):  # one of them got work meanwhile
                return self._make_room(resident, evicted)
            evicted += idle[:n]
            for other in idle[:n]:
                self.n_evicted += 1
                LOG.info("model %s: gave its memory to %s", other.name, resident.name)
            if plan is not None and self.max_bytes is None:
                self.max_bytes = plan.room_bytes
            return plan
        raise AssertionError("the last plan is made or refused")

    def _room(self, without: Sequence[Resident]) -> int | None:
        """Bytes for one more model if those idle ones were gone."""
        if self.max_bytes is None:
            return None
        held = sum(r.n_bytes for r in self if r not in without)
        return max(0, self.max_bytes - held)


def _plan(resident: Resident, room_bytes: int | None) -> Plan | None:
    """The plan for so much room; None: the size is not known.

    Raises:
        MemoryPlanError: it does not fit.
    """
    plan = resident.plan(room_bytes)
    if plan is not None and room_bytes is not None and plan.own_bytes > room_bytes:
        raise MemoryPlanError(
            f"{resident.name} needs {text(plan.own_bytes)}; {text(room_bytes)} are left beside "
            "the models that are in use",
            "Ask again when they are idle, or give the server a larger --max-memory.",
        )
    return plan
