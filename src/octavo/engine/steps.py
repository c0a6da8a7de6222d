"""Running the model on pieces of sequences: fills the batch arrays, records and replays steps.

A recorded step is kept with its arrays under its shape. The next step of that shape rewrites the
arrays and replays it, without Python between the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from octavo import ops
from octavo.kv.batch import Batch
from octavo.kv.cache import NULL_PAGE, Cache, Timeline, pages_of
from octavo.models import Model, Output
from octavo.ops import Array, Captured
from octavo.record import dataclass

# A recorded step keeps memory for its activations. Of large steps Python's share is small anyway.
MAX_STEP_TOKENS = 32
MAX_RECORDED_TOKENS = 64
_NO_HIDDEN: Array = np.zeros((0, 0), np.float32)


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of one sequence, `ids[0]` at position `start`.

    Logits are computed for the last `n_outputs` of them. `slots[i]` receives the recurrent state
    after `ids[i]`; without it only the last one's is kept, in the timeline's own slot.
    """

    timeline: Timeline
    start: int
    ids: Sequence[int]
    n_outputs: int = 0
    slots: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Recorded:
    batch: Batch
    hidden: Array  # what `draft` reads; (0, D) for the trunk
    step: Captured[Output]


class Steps:
    """The trunk and the draft block of one model on one cache.

    Results hold until the next call: a replay overwrites them.
    """

    def __init__(
        self,
        model: Model,
        cache: Cache,
        between: Callable[[], None] | None = None,
        *,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`between` is called with each step of the trunk, when the processor's part of it is done:
        the next step, of the draft block too, sees what it did. `before` is called right before
        anything is computed.
        """
        self._between = between
        self._before = before
        self._model = model
        self._cache = cache
        self._backend = cache.layers[0].backend
        self._n_pages = pages_of(cache.context)
        self._recorded: dict[tuple[object, ...], Recorded] = {}  # least recently used first

    def will_record(self, pieces: Sequence[Piece]) -> bool:
        """Whether `run` would record this step, as the first of its shape."""
        n_tokens = sum(len(p.ids) for p in pieces)
        return n_tokens <= MAX_STEP_TOKENS and _shape("trunk", pieces) not in self._recorded

    def run(
        self, pieces: Sequence[Piece], record: bool = False, every_hidden: bool = True
    ) -> Output:
        """The trunk. Timelines must have reserved the room; they are not advanced.

        Without `every_hidden` the last block skips what only other tokens' hidden states need,
        and `hidden` has the rows of `logits`.
        """
        part = "trunk" if every_hidden else "outputs"
        return self._go(part, pieces, _NO_HIDDEN, record, self._between)

    def draft(self, pieces: Sequence[Piece], hidden: Array, record: bool = False) -> Output:
        """The draft block; `hidden` (T, D) as in `Model.draft`."""
        return self._go("draft", pieces, hidden, record)

    def warm_up(self, prompt_tokens: int, answer_tokens: int = 1, n_answers: int = 1) -> None:
        """Run the largest step of a prompt, one of a single token, and the largest of answers (so
        many tokens of each) on the null page, where they change nothing.

        On a device kernels are compiled then, and the memory that steps need is allocated.
        """
        for n, at_once in (prompt_tokens, 1), (1, 1), (answer_tokens, n_answers):
            is_prompt = n == prompt_tokens
            piece = Piece(Timeline(self._cache, 0), 0, [0] * n, 1 if is_prompt else n, (-1,) * n)
            self._go("trunk", [piece] * at_once, _NO_HIDDEN, record=not is_prompt)
        self._recorded.clear()

    def _go(
        self,
        part: str,
        pieces: Sequence[Piece],
        hidden: Array,
        record: bool,
        between: Callable[[], None] | None = None,
    ) -> Output:
        key = _shape(part, pieces)
        known = self._recorded.pop(key, None)
        if known is not None:
            self._recorded[key] = known
            _fill(known.batch, pieces)
            np.copyto(known.hidden, hidden)
            self._before()
            known.step.replay(between)
            return known.step.result
        out = self._first(part, pieces, hidden, record)
        if between is not None:
            between()
        return out

    def _first(self, part: str, pieces: Sequence[Piece], hidden: Array, record: bool) -> Output:
        """A step that is not known; with `record` it will be."""
        batch = Batch.empty(
            sum(len(p.ids) for p in pieces),
            len(pieces),
            self._n_pages,
            sum(p.n_outputs for p in pieces),
            lambda n: self._backend.host((n,), np.int32),
        )
        _fill(batch, pieces)
        own = self._backend.host(hidden.shape, np.float32)
        np.copyto(own, hidden)
        self._before()
        step = partial(self._forward, part, batch, own)
        if not record or batch.n_tokens > MAX_STEP_TOKENS:
            return step()
        self._make_room(batch.n_tokens)
        captured = ops.capture(step, self._backend)
        self._recorded[_shape(part, pieces)] = Recorded(batch, own, captured)
        return captured.result

    def _make_room(self, n_tokens: int) -> None:
        """Drop recorded steps, the least recently used first."""
        held = sum(r.batch.n_tokens for r in self._recorded.values())
        while held + n_tokens > MAX_RECORDED_TOKENS:
            held -= self._recorded.pop(next(iter(self._recorded))).batch.n_tokens

    def _forward(self, part: str, batch: Batch, hidden: Array) -> Output:
        """The step where the back end computes; its results come back to main memory."""
        backend, layers = self._backend, self._cache.layers
        there = batch.in_buffer(backend.send(batch.buffer))
        if part == "draft":
            out = self._model.draft(there, backend.send(hidden), layers)
        else:
            out = self._model.forward(there, layers, every_hidden=part == "trunk")
        return Output(backend.fetch(out.hidden), backend.fetch(out.logits))


def _shape(part: str, pieces: Sequence[Piece]) -> tuple[object, ...]:
    return part, *((len(p.ids), p.n_outputs) for p in pieces)


def _fill(batch: Batch, pieces: Sequence[Piece]) -> None:
    """Write the pieces into the arrays of a batch of their shape."""
    at = n_outputs = 0
    for s, piece in enumerate(pieces):
        end = at + len(piece.ids)
        batch.ids[at:end] = piece.ids
        batch.positions[at:end] = np.arange(piece.start, piece.start + len(piece.ids))
        batch.starts[s : s + 2] = at, end
        batch.n_past[s] = piece.start
        pages = piece.timeline.pages
        batch.pages[s, : len(pages)] = pages
        batch.pages[s, len(pages) :] = NULL_PAGE
        batch.slots[s] = piece.timeline.slot
        batch.state_slots[at:end] = -1
        batch.state_slots[end - len(piece.slots or (0,)) : end] = piece.slots or (
            piece.timeline.slot,
        )
        wanted = n_outputs + piece.n_outputs
        batch.outputs[n_outputs:wanted] = np.arange(end - piece.n_outputs, end)
        at, n_outputs = end, wanted
