"""The cache of one model: memory of every layer, and who holds which part of it.

Attention layers share one numbering of pages: page p means page p of every layer. Page 0 is the
null page: it belongs to nobody, fills up page tables and may be written by padding tokens.
Recurrent layers share one numbering of slots. One thread (the engine's) uses all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.errors import CacheFullError, ContextFullError
from octavo.kv import formats
from octavo.kv.layers import AttentionLayer, CacheLayer, RecurrentLayer
from octavo.kv.pool import Pool
from octavo.kv.state import PAGE_TOKENS, LayerSpec, RecurrentSpec
from octavo.ops.backend import Backend

NULL_PAGE = 0
Ids = NDArray[np.int32]


def pages_of(n_tokens: int) -> int:
    """Pages that hold that many positions."""
    return -(-n_tokens // PAGE_TOKENS)


def common_length(a: Ids, b: Ids) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    differ = np.not_equal(a[:n], b[:n])
    return int(differ.argmax()) if differ.any() else n


class Cache:
    """Memory for `n_pages` pages (besides the null page) and `n_slots` recurrent states.

    `layers[i]` belongs to `specs[i]`. Everything is allocated here, zeroed, and never grows.
    `context` is the most tokens a timeline may hold; None: as many as the pages do.
    When pages or slots run out, `reclaim_pages(n, own)` frees n pages and `reclaim_slots()` some
    slot; False: they cannot, and have changed nothing. A page of `own` counts as freed when the
    one who asks is left as its only owner: it need not be copied then.
    """

    def __init__(
        self,
        specs: Sequence[LayerSpec],
        *,
        n_pages: int,
        n_slots: int,
        format: str,
        backend: Backend,
        context: int | None = None,
    ) -> None:
        self.specs = tuple(specs)
        self.format = format
        self.context = n_pages * PAGE_TOKENS if context is None else context
        self.layers: tuple[CacheLayer, ...] = tuple(
            _layer(spec, n_pages + 1, n_slots, format, backend) for spec in self.specs
        )
        self.attention = tuple(x for x in self.layers if isinstance(x, AttentionLayer))
        self.recurrent = tuple(x for x in self.layers if isinstance(x, RecurrentLayer))
        self.pages = Pool(n_pages, first=NULL_PAGE + 1)
        self.slots = Pool(n_slots if self.recurrent else 0)
        self.reclaim_pages: Callable[[int, Sequence[int]], bool] = lambda n, own: False
        self.reclaim_slots: Callable[[], bool] = lambda: False
        self.snapshot_slots: set[int] = set()

    @property
    def n_bytes(self) -> int:
        """Bytes of all layers; `plan.memory` computes the same number beforehand."""
        pages = sum(x.data.nbytes for x in self.attention)
        return pages + sum(x.conv.nbytes + x.state.nbytes for x in self.recurrent)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in all layers together."""
        return sum(x.data.shape[1] for x in self.attention)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one recurrent state in all layers together."""
        return sum(x.spec.n_bytes for x in self.recurrent)

    def open(self) -> Timeline:
        """A timeline of 0 tokens. With recurrent layers it takes a slot.

        Raises:
            CacheFullError: running sequences hold every slot.
        """
        return Timeline(self, self.take_slot() if self.recurrent else -1)

    def take_slot(self) -> int:
        """A slot for the caller to own; what it holds is undefined.

        Raises:
            CacheFullError: running sequences hold every slot.
        """
        while not self.slots.n_free:
            if not self.reclaim_slots():
                raise CacheFullError(
                    "No recurrent state is free: running sequences hold all of them",
                    "Wait until one ends, or plan for more sequences.",
                )
        return self.slots.take()

    def free_slot(self, slot: int) -> None:
        """Give up one ownership of a slot."""
        self.slots.free((slot,))
        if not self.slots.owners(slot):
            self.snapshot_slots.discard(slot)

    def copy_slot(self, source: int, target: int) -> None:
        for layer in self.recurrent:
            layer.conv[target] = layer.conv[source]
            layer.state[target] = layer.state[source]

    def copy_page(self, source: int, target: int) -> None:
        for layer in self.attention:
            layer.data[target] = layer.data[source]

    def need_pages(self, n: int, shared: Sequence[int] = ()) -> None:
        """Make sure that n pages are free, and one more for each of `shared` that still is shared.

        Raises:
            CacheFullError: running sequences hold too many.
        """
        n_free, n_wanted = self.pages.n_free, n + len(shared)
        if n_free < n_wanted and not self.reclaim_pages(n_wanted - n_free, shared):
            raise CacheFullError(
                f"{n_wanted} more cache pages of {PAGE_TOKENS} tokens are needed, {n_free} are "
                "free: running sequences hold the rest",
                "Wait until one ends, or plan for a larger context or fewer sequences.",
            )


class Timeline:
    """One sequence's place in the cache: which tokens are in it, and where.

    `pages[i]` holds positions i * PAGE_TOKENS and following. `slot` holds the recurrent state
    after `n_tokens` tokens (-1: the model has none, or the timeline is parked). `snapshots` maps
    a number of tokens to the slot with the state after them; snapshots are never written again.
    """

    def __init__(self, cache: Cache, slot: int) -> None:
        self.cache = cache
        self.pages: list[int] = []
        self.slot = slot
        self.snapshots: dict[int, int] = {}
        self.n_tokens = 0
        self.n_uses = 0  # how often a sequence went on from it, or from what it went on from
        self.left_at = -1  # tokens after which the latest of these went on; -1: none did
        self.last_mark = 0  # tokens before the latest answer, if a snapshot was made there
        self.is_closed = False
        self._ids: Ids = np.zeros(PAGE_TOKENS, np.int32)

    @property
    def ids(self) -> Ids:
        """The tokens held (n_tokens,), read-only; valid until the timeline changes."""
        held = self._ids[: self.n_tokens]
        held.flags.writeable = False
        return held

    def reserve(self, n_tokens: int) -> None:
        """Make room for n tokens more, all pages of it writable by this timeline alone.

        Raises:
            ContextFullError: the context is too small. Nothing has changed.
            CacheFullError: running sequences hold the pages. Nothing has changed.
        """
        end = self.n_tokens + n_tokens
        if end > self.cache.context:
            raise ContextFullError(
                f"{end} tokens do not fit into the context of {self.cache.context}",
                "Shorten the prompt or the answer, or plan for a larger context.",
            )
        first = self.n_tokens // PAGE_TOKENS  # the first page that will be written
        owners = self.cache.pages.owners
        shared = [page for page in self.pages[first:] if owners(page) > 1]
        n_new = max(0, pages_of(end) - len(self.pages))
        self.cache.need_pages(n_new, shared)
        for i in range(first, len(self.pages)):
            if owners(self.pages[i]) > 1:  # making room may have left this one as the only owner
                self._own_page(i)
        self.pages += [self.cache.pages.take() for _ in range(n_new)]

    def advance(self, ids: Sequence[int] | Ids) -> None:
        """Note that a step has written these tokens (and, in `slot`, the state after them)."""
        end = self.n_tokens + len(ids)
        assert end <= len(self.pages) * PAGE_TOKENS, "advance() beyond what reserve() asked for"
        if end > len(self._ids):
            self._ids = np.resize(self._ids, max(end, 2 * len(self._ids)))
        self._ids[self.n_tokens : end] = ids
        self.n_tokens = end

    def reachable(self, n: int) -> int:
        """The largest m <= n to which `truncate` and `fork` can go back."""
        n = min(n, self.n_tokens)
        if not self.cache.recurrent or (n == self.n_tokens and self.slot >= 0):
            return n
        return max((m for m in self.snapshots if m <= n), default=0)

    def truncate(self, n: int) -> None:
        """Forget all tokens but the first n; `reachable(n)` must be n."""
        assert self.reachable(n) == n, f"no recurrent state is kept after {n} tokens"
        if n in self.snapshots and n < self.n_tokens and self.slot >= 0:
            self.cache.copy_slot(self.snapshots[n], self.slot)
        self._cut(n)

    def adopt(self, slot: int, n: int) -> int:
        """Make `slot`, which a step filled with the state after n tokens, the current one.

        Tokens after n are forgotten. Returns the former slot: it now belongs to the caller, as
        `slot` belonged before.
        """
        assert n <= self.n_tokens, f"adopt() at {n} of {self.n_tokens} tokens"
        former, self.slot = self.slot, slot
        self._cut(n)
        return former

    def fork(self, n: int | None = None) -> Timeline:
        """Another timeline with the first n tokens (default all); `reachable(n)` must be n.

        Pages are shared until one of the two writes; the state is copied.

        Raises:
            CacheFullError: running sequences hold every slot.
        """
        n = self.n_tokens if n is None else n
        assert self.reachable(n) == n, f"no recurrent state is kept after {n} tokens"
        # Shared first, so that reclaiming this timeline's own memory for the slot does no harm.
        snapshots = {m: slot for m, slot in self.snapshots.items() if m <= n}
        pages = self.pages[: pages_of(n)]
        source = snapshots.get(n, self.slot)
        held = [*snapshots.values()] + ([source] if source >= 0 and n not in snapshots else [])
        self.cache.slots.share(held)
        self.cache.pages.share(pages)
        ids = self._ids[:n].copy()
        try:
            twin = self.cache.open()
        except CacheFullError:
            self.cache.pages.free(pages)
            for slot in held:
                self.cache.free_slot(slot)
            raise
        if source >= 0:
            self.cache.copy_slot(source, twin.slot)
            for slot in held[len(snapshots) :]:
                self.cache.free_slot(slot)
        twin.pages, twin.snapshots, twin.n_tokens = pages, snapshots, n
        twin._ids = ids if n else twin._ids
        twin.last_mark = self.last_mark if self.last_mark <= n else 0
        return twin

    def keep(self, n: int, slot: int) -> None:
        """Hand over a slot that a step filled with the state after n tokens, as a snapshot."""
        assert 0 < n <= self.n_tokens, f"keep() at {n} of {self.n_tokens} tokens"
        if n in self.snapshots:
            self.cache.free_slot(slot)
        else:
            self.snapshots[n] = slot
            self.cache.snapshot_slots.add(slot)

    def drop_snapshot(self, n: int) -> None:
        self.cache.free_slot(self.snapshots.pop(n))

    def park(self) -> None:
        """Stop running: the current state becomes a snapshot. To run again: `fork`."""
        self._cut(self.n_tokens)
        if self.slot < 0:
            return
        if self.n_tokens:
            self.keep(self.n_tokens, self.slot)
        else:
            self.cache.free_slot(self.slot)
        self.slot = -1

    def close(self) -> None:
        """Give everything back. Closing again does nothing."""
        self.cache.pages.free(self.pages)
        for slot in (*self.snapshots.values(), self.slot):
            if slot >= 0:
                self.cache.free_slot(slot)
        self.pages, self.snapshots, self.slot, self.n_tokens = [], {}, -1, 0
        self.is_closed = True

    def _cut(self, n: int) -> None:
        for m in [m for m in self.snapshots if m > n]:
            self.drop_snapshot(m)
        self.cache.pages.free(self.pages[pages_of(n) :])
        del self.pages[pages_of(n) :]
        self.n_tokens = n

    def _own_page(self, index: int) -> None:
        """Copy a shared page, so that writing does not change the other owners' tokens."""
        shared = self.pages[index]
        self.pages[index] = self.cache.pages.take()
        self.cache.copy_page(shared, self.pages[index])
        self.cache.pages.free((shared,))


def _layer(
    spec: LayerSpec, n_pages: int, n_slots: int, format: str, backend: Backend
) -> CacheLayer:
    if isinstance(spec, RecurrentSpec):
        return RecurrentLayer(
            spec,
            conv=backend.alloc((n_slots, *spec.conv_shape), np.float32),
            state=backend.alloc((n_slots, *spec.state_shape), np.float32),
            backend=backend,
        )
    data = backend.alloc((n_pages, formats.page_bytes(format, spec)), np.uint8)
    return AttentionLayer(spec, format, data, backend)
