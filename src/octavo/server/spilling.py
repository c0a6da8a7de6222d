"""Watching that video memory does not spill into main memory while models are served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import anyio.to_thread

from octavo.plan.borrowed import REMEDY, borrowed_bytes
from octavo.plan.gpus import probe_gpus
from octavo.plan.memory import text
from octavo.plan.plan import Video
from octavo.server.faults import RefusedError
from octavo.server.fleet import Fleet

LOG = logging.getLogger("octavo.memory")

LOOK_SECONDS = 15.0
WORTH_A_LINE_BYTES = 256 << 20  # drivers borrow some for themselves


@dataclass(frozen=True)
class VideoUse:
    """A card at one moment, in bytes."""

    total_bytes: int
    free_bytes: int
    own_bytes: int  # allocated by this program, CUDA's context left out
    pinned_bytes: int = 0  # main memory that this program gave the card on purpose
    borrowed_bytes: int = 0  # main memory that the card uses for this program; 0: not counted here

    @property
    def spill_bytes(self) -> int:
        """What was allocated on the card and lies in main memory: at least so much.

        What the system counts beyond our pinned memory; where it counts nothing, what we hold
        beyond all that is in use on the card.
        """
        beyond = self.own_bytes - (self.total_bytes - self.free_bytes)
        return max(0, beyond, self.borrowed_bytes - self.pinned_bytes)


def look(video: Video, own_bytes: int, pinned_bytes: int) -> VideoUse | None:
    """The card that a plan is for, now; None: the driver does not answer."""
    card = next((gpu for gpu in probe_gpus() if gpu.name == video.gpu), None)
    if card is None:
        return None
    borrowed = borrowed_bytes().get(os.getpid(), 0)
    return VideoUse(card.total_bytes, card.free_bytes, own_bytes, pinned_bytes, borrowed)


class Watch:
    """Looks at the card now and then, while a model is on it, and warns when it spills."""

    def __init__(
        self, fleet: Fleet, look: Callable[[Video, int, int], VideoUse | None] = look
    ) -> None:
        self.latest: VideoUse | None = None  # None: no model is on a card
        self._fleet = fleet
        self._look = look
        self._has_warned = False

    async def run(self) -> None:
        """Look for ever."""
        while True:
            with contextlib.suppress(RefusedError):  # a model was given up just now
                await self.once()
            await asyncio.sleep(LOOK_SECONDS)

    async def once(self) -> None:
        """Look, and say so when it begins to spill."""
        sessions = [r.session for r in self._fleet if r.state == "ready"]
        videos = [s.plan.video for s in sessions if s.plan.video is not None]
        own_bytes = max((s.video_bytes or 0 for s in sessions), default=0)  # of the whole program
        if not (videos and own_bytes):
            self.latest = None
            return
        pinned = sum(video.pinned_bytes for video in videos)
        self.latest = await anyio.to_thread.run_sync(self._look, videos[0], own_bytes, pinned)
        spill = self.latest.spill_bytes if self.latest else 0
        if spill >= WORTH_A_LINE_BYTES and not self._has_warned:
            LOG.warning(
                "%s of video memory lie in main memory, which makes all slow. %s",
                text(spill),
                REMEDY,
            )
        self._has_warned = spill >= WORTH_A_LINE_BYTES
