"""Finished sequences, kept so that the next request need not compute the same tokens again.

Kept timelines are parked: their pages and recurrent snapshots stay in the cache under one byte
budget, and go when running sequences need the room: first what nothing went on from, small ones
before large ones, so that a client's side requests cannot push out its conversation; of equals the
least recently used. Where that was wrong, because something that went is asked for again, the
oldest conversation loses its privilege.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from octavo.kv.cache import Cache, Ids, Timeline, common_length
from octavo.kv.state import PAGE_TOKENS

if TYPE_CHECKING:
    from octavo.kv.shelf import Shelf

# Why no more of a prompt was reused: all was, or what was kept ended there; the tokens differ; a
# recurrent model has no state there; what was kept was given up; or nothing like it was ever kept.
Cause = Literal["whole", "end", "diverged", "snapshot", "evicted", "new"]


class Reuse(NamedTuple):
    """What was found for a prompt. `timeline` runs and holds the first `n_reused` tokens of it.

    `cause` and `reason` say, for programs and for the log, where reuse ended and why.
    """

    timeline: Timeline
    n_reused: int
    cause: Cause
    reason: str


_REMEMBERED_TOKENS = 1 << 20  # of what was given up, to know it again: 4 MB
# A sequence is small that has less than so much of the pages: side requests, not conversations.
_SMALL_SHARE = 1 / 16


class PrefixStore:
    """The kept timelines of one cache.

    At most `budget_bytes` are held: the pages of kept timelines (each page once) and all
    snapshots, those of running timelines included. At most `n_snapshots` of the cache's slots
    hold snapshots; the others are left to running sequences. What is given up for lack of room
    goes to the `shelf`, if there is one, and what it holds is found again.
    """

    def __init__(
        self, cache: Cache, budget_bytes: int, n_snapshots: int, shelf: Shelf | None = None
    ) -> None:
        self.shelf = shelf
        self._cache = cache
        self._budget_bytes = budget_bytes
        self._n_snapshots = n_snapshots
        self._kept: list[Timeline] = []  # least recently used first
        self._running: list[Timeline] = []
        self._page_owners: Counter[int] = Counter()  # page -> kept timelines that hold it
        self._gone: deque[Ids] = deque()  # tokens of what was given up, the latest last
        self.n_evicted = 0
        self.n_hits = 0  # prompts of which something was found
        self.n_misses = 0
        cache.reclaim_pages = self._free_pages
        cache.reclaim_slots = self._drop_snapshot

    @property
    def n_bytes(self) -> int:
        """Bytes that count against the budget now."""
        n_snapshots = len(self._cache.snapshot_slots)
        return (
            len(self._page_owners) * self._cache.page_bytes + n_snapshots * self._cache.slot_bytes
        )

    def figures(self) -> dict[str, int]:
        """Counts for people who watch, by their names."""
        return {
            "hits": self.n_hits,
            "misses": self.n_misses,
            "evicted": self.n_evicted,
            "saved": self.shelf.n_saved if self.shelf else 0,
            "restored": self.shelf.n_restored if self.shelf else 0,
            "prefixes": len(self._kept),
            "snapshots": len(self._cache.snapshot_slots),
            "bytes": self.n_bytes,
            "limit_bytes": self._budget_bytes,
        }

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Timeline]:
        """Kept timelines, least recently used first."""
        return iter(tuple(self._kept))

    def find(self, ids: Ids) -> Reuse:
        """A running timeline with the longest reusable prefix of `ids` (n,), n >= 1.

        Looks at kept timelines and at those that run now. The last token of `ids` is never
        reused: a step has to compute its logits. The timeline comes back through `keep`.

        Raises:
            CacheFullError: running sequences hold every recurrent slot.
        """
        self._running = [t for t in self._running if not t.is_closed]
        wanted = ids[:-1]
        best, n_common, n_reused = self._best(wanted)
        if self.shelf and (restored := self.shelf.restore(wanted, n_reused)):
            self.keep(restored)
            best, n_common, n_reused = self._best(wanted)
        cause, reason = _reason(best, n_common, n_reused, len(wanted))
        n_gone = max((common_length(ids, wanted) for ids in self._gone), default=0)
        if n_gone > n_common and n_gone >= PAGE_TOKENS:
            cause, reason = "evicted", f"{n_gone} tokens of it had been given up for others"
            self._demote()
        if best is None or n_reused == 0:
            timeline = self._cache.open()
        else:
            self._touch(best)
            timeline = best.fork(n_reused)
            if 2 * n_reused >= best.n_tokens:  # more than that they begin alike
                timeline.n_uses = best.n_uses + 1
                best.left_at = n_reused
        self._running.append(timeline)
        self.n_hits += n_reused > 0
        self.n_misses += n_reused == 0
        return Reuse(timeline, n_reused, cause, reason)

    def _best(self, wanted: Ids) -> tuple[Timeline | None, int, int]:
        """The timeline that helps most, its tokens in common and those to be reused."""
        best, n_common, n_reused = None, 0, 0
        for timeline in (*self._running, *self._kept):
            common = common_length(timeline.ids, wanted)
            reachable = timeline.reachable(common)
            if (reachable, common) >= (n_reused, n_common):
                best, n_common, n_reused = timeline, common, reachable
        return best, n_common, n_reused

    def save(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Put on the shelf what is not there yet, the latest first, until `go_on` says False."""
        for timeline in reversed(self._kept if self.shelf else ()):
            if not go_on():
                return
            if self.shelf:
                self.shelf.save(timeline, go_on)

    def snapshot(self, timeline: Timeline) -> None:
        """Keep a copy of the running timeline's state, for later requests to go back to.

        Without recurrent layers every position can be gone back to, and nothing happens. Where
        the budget holds no more, the least useful snapshot goes.
        """
        cache, n = self._cache, timeline.n_tokens
        if timeline.slot < 0 or n == 0 or n in timeline.snapshots:
            return
        if self._make_room(timeline) and cache.slots.n_free:
            slot = cache.take_slot()
            cache.copy_slot(timeline.slot, slot)
            timeline.keep(n, slot)
            timeline.last_mark = n

    def keep(self, timeline: Timeline) -> None:
        """Take over a timeline that has ended (or was restored): parked, or closed if useless."""
        self._running = [t for t in self._running if t is not timeline]
        timeline.park()
        for kept in self:
            n_common = common_length(kept.ids, timeline.ids)
            if n_common == timeline.n_tokens:  # nothing new
                _give_snapshots(timeline, kept)
                kept.n_uses = max(kept.n_uses, timeline.n_uses)
                timeline.close()
                self._touch(kept)
                return self._shrink()
            if n_common == kept.n_tokens:
                _give_snapshots(kept, timeline)
                timeline.last_mark = max(kept.last_mark, timeline.last_mark)
                timeline.n_uses = max(kept.n_uses, timeline.n_uses)
                self._close(kept)
        self._kept.append(timeline)
        self._page_owners.update(timeline.pages)
        self._shrink()

    def holding(self, ids: Ids) -> Timeline | None:
        """The kept timeline that begins with all of `ids` (n,), if there is one."""
        for timeline in reversed(self._kept):
            if len(ids) and common_length(timeline.ids, ids) == len(ids):
                return timeline
        return None

    def drop(self, timeline: Timeline) -> None:
        """Close a kept timeline; it is not saved."""
        self._close(timeline)

    def clear(self) -> None:
        """Close all kept timelines."""
        for timeline in self:
            self._close(timeline)

    def _touch(self, timeline: Timeline) -> None:
        if timeline in self._kept:
            self._kept.remove(timeline)
            self._kept.append(timeline)

    def _shrink(self) -> None:
        """Bring everything back under the budget."""
        while len(self._cache.snapshot_slots) > self._n_snapshots and self._drop_snapshot():
            pass
        for timeline in self:
            if timeline.reachable(timeline.n_tokens) == 0:
                self._close(timeline)
        while self.n_bytes > self._budget_bytes and self._give_up_something():
            pass

    def _make_room(self, timeline: Timeline) -> bool:
        """Make room for one snapshot of `timeline`."""
        if timeline not in self._running:
            self._running.append(timeline)
        cache = self._cache
        while len(cache.snapshot_slots) >= self._n_snapshots:
            if not self._drop_snapshot():
                return False
        while self.n_bytes + cache.slot_bytes > self._budget_bytes:
            if not self._give_up_something():
                return False
        return True

    def _give_up_something(self) -> bool:
        """The oldest kept timeline; but of the last one first all snapshots that it can spare."""
        can_spare = any(len(t.snapshots) > 1 for t in (*self._kept, *self._running))
        if len(self._kept) <= 1 and can_spare:
            return self._drop_snapshot()
        return self._evict() or self._drop_snapshot()

    def _free_pages(self, n: int, own: Sequence[int]) -> bool:
        """Close kept timelines until n pages more are free; none, if that is not enough.

        A page of `own` counts as free when kept timelines no longer share it with one owner.
        """
        pool, kept = self._cache.pages, self._page_owners
        n_only_kept = sum(pool.owners(page) == owners for page, owners in kept.items())
        n_shared = sum(kept[page] > 0 and pool.owners(page) == kept[page] + 1 for page in own)
        if n_only_kept + n_shared < n:
            return False

        def n_gained() -> int:
            return pool.n_free + sum(pool.owners(page) == 1 for page in own)

        wanted = n_gained() + n
        while n_gained() < wanted and self._evict():
            pass
        return n_gained() >= wanted

    def _evict(self) -> bool:
        if not self._kept:
            return False
        timeline = min(self._kept, key=self._rank)  # of equals the first: the oldest
        if self.shelf:
            self.shelf.save(timeline)
        self._gone.append(timeline.ids.copy())
        while sum(map(len, self._gone)) > _REMEMBERED_TOKENS:
            self._gone.popleft()
        self.n_evicted += 1
        self._close(timeline)
        return True

    def _rank(self, timeline: Timeline) -> int:
        """What goes first has the lowest."""
        if timeline.n_uses:
            return 2
        return int(len(timeline.pages) > _SMALL_SHARE * self._cache.pages.n_places)

    def _demote(self) -> None:
        """What went was wanted after all: the oldest conversation goes before other things now."""
        conversations = [timeline for timeline in self._kept if timeline.n_uses]
        if len(conversations) > 1:  # the latest one keeps its place
            conversations[0].n_uses = 0

    def _close(self, timeline: Timeline) -> None:
        self._kept.remove(timeline)
        self._page_owners.subtract(timeline.pages)
        self._page_owners = +self._page_owners  # without those that count 0
        timeline.close()

    def _drop_snapshot(self) -> bool:
        """Drop the snapshot whose loss costs least. False: there is none."""
        costs = self._costs()
        if not costs:
            return False
        slot = min(costs, key=lambda slot: costs[slot])
        for timeline in (*self._kept, *self._running):
            for n in [n for n, held in timeline.snapshots.items() if held == slot]:
                timeline.drop_snapshot(n)
                if timeline in self._kept and not timeline.snapshots:
                    self._close(timeline)
        return True

    def _costs(self) -> dict[int, tuple[float, int]]:
        """Slot of a snapshot -> what its loss would cost, and a number to part equals by.

        The cost is the tokens back to the snapshot before it, times how likely a request is to
        go on from there: less where its timeline was not used for long, or nothing ever went on
        from it, and in the middle of a timeline. Forks share snapshots: it counts what one is to
        the latest of them, because a turn whose answer comes back in another form leaves a fork
        behind that nothing goes on from.
        """
        costs: dict[int, tuple[float, int]] = {}
        ages = [(timeline, 0) for timeline in self._running]  # as recent as the latest kept one
        ages += [(timeline, age) for age, timeline in enumerate(reversed(self._kept))]
        for timeline, age in ages:
            places = sorted(timeline.snapshots)
            gaps = np.diff(places, prepend=0).tolist()
            for n, gap in zip(places, gaps, strict=True):
                chance = _likelihood(timeline, n, places) * (1.0 if timeline.n_uses else 0.06)
                cost = chance * gap / (1 + age), -len(places)
                costs.setdefault(timeline.snapshots[n], cost)
        return costs


def _likelihood(timeline: Timeline, n: int, places: list[int]) -> float:
    """How likely a request goes on from the snapshot after n tokens; a rough guess.

    The next turn goes on from the end, or from before the latest answer, if that comes back
    changed or is asked for again. The first snapshot is the end of system prompt and tools. What
    lies behind the place from which another sequence went on was left for good.
    """
    was_left = 0 <= timeline.left_at < n
    if n in (timeline.last_mark, places[-1]) and not was_left:
        return 1.0
    return 0.25 if n == places[0] else 0.015


def _give_snapshots(giver: Timeline, taker: Timeline) -> None:
    """Snapshots of the same tokens that the taker lacks become its own too."""
    for n, slot in giver.snapshots.items():
        if n not in taker.snapshots and n <= taker.n_tokens:
            taker.cache.slots.share((slot,))
            taker.keep(n, slot)


def _reason(
    best: Timeline | None, n_common: int, n_reused: int, n_wanted: int
) -> tuple[Cause, str]:
    if n_wanted == 0:
        return "whole", "a prompt of one token is always computed"
    if best is None:
        return "new", "nothing was kept"
    if n_reused < n_common:
        place = f"token {n_reused}" if n_reused else "the start"
        return (
            "snapshot",
            f"no snapshot between {place} and token {n_common}, up to which the tokens agree",
        )
    if n_common == n_wanted:
        return "whole", "all but the last token was kept"
    if n_common == best.n_tokens:
        return "end", f"what was kept ends at token {n_common} of {n_wanted + 1}"
    return "diverged", f"diverged at token {n_common} of {n_wanted + 1}"
