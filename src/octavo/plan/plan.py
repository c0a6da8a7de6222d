"""The plan itself: a frozen record of what lives where, printable for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from octavo.plan.memory import text

Place = Literal["read", "map"]


@dataclass(frozen=True)
class Plan:
    """What lives where, and how many bytes each. All of it is allocated when the model loads."""

    model: str
    architecture: str
    weights: Place  # read: copied into memory; map: the system brings pages of the file
    weights_reason: str
    weight_bytes: Mapping[str, int]  # by kind: trunk, embedding, head, experts, mtp
    context: int  # tokens of prompt and answer of one sequence
    context_reason: str
    sequences: int  # at once, each with the whole context
    batch_tokens: int  # most prompt tokens of one step
    draft_tokens: int  # most tokens guessed ahead
    cache_format: str
    n_pages: int  # of the cache, besides the null page
    n_slots: int  # recurrent states, snapshots included
    n_snapshots: int
    cache_bytes: int  # attention pages
    state_bytes: int  # recurrent states
    scratch_bytes: int
    available_bytes: int  # before loading
    reserve_bytes: int  # of these, left to the rest of the system
    read_bytes_per_token: int  # weights that a decoded token reads
    threads: int
    isa: str
    slow_formats: tuple[str, ...]  # block formats in the file without a fast kernel

    @property
    def prefix_bytes(self) -> int:
        """The budget for kept prefixes: they live in what running sequences leave free."""
        return self.cache_bytes + self.n_snapshots * self._slot_bytes

    @property
    def own_bytes(self) -> int:
        """Memory that only this program can use: everything but mapped weights."""
        return self.total_bytes - (self.file_bytes if self.weights == "map" else 0)

    @property
    def file_bytes(self) -> int:
        """All weights."""
        return sum(self.weight_bytes.values())

    @property
    def total_bytes(self) -> int:
        return self.file_bytes + self.cache_bytes + self.state_bytes + self.scratch_bytes

    @property
    def room_bytes(self) -> int:
        """What this program may use."""
        return max(0, self.available_bytes - self.reserve_bytes)

    @property
    def fits(self) -> bool:
        """Whether everything stays in memory; mapped weights that do not come from disk."""
        return self.total_bytes <= self.room_bytes

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        sums = "prefix_bytes", "own_bytes", "total_bytes", "room_bytes", "fits"
        return asdict(self) | {name: getattr(self, name) for name in sums}

    def table(self) -> str:
        """For people: one line each, sizes aligned."""
        rows = [*self.byte_rows(), ("total", self.total_bytes, self._verdict())]
        lines = [f"{label:<18} {text(n):>9}  {why}".rstrip() for label, n, why in rows]
        reads = text(self.read_bytes_per_token)
        notes = [
            f"context: {self.context:,} tokens ({self.context_reason})",
            f"a token reads {reads} of weights, and what the cache holds",
            f"threads: {self.threads}, instructions: {self.isa or 'no native kernels'}",
        ]
        if self.slow_formats:
            notes.append(f"without a fast kernel, so slow: {', '.join(self.slow_formats)}")
        return "\n".join([f"{self.model} ({self.architecture})", *lines, *notes])

    def byte_rows(self) -> list[tuple[str, int, str]]:
        """(label, bytes, remark) of everything that takes memory; kinds of weights indented."""
        kinds = ((f"  {kind}", n, "") for kind, n in self.weight_bytes.items())
        sequences = f"{self.sequences} x " if self.sequences > 1 else ""
        states = f"{self.n_slots} recurrent states, {self.n_snapshots} for snapshots"
        rows = [
            (f"weights, {_WORDS[self.weights]}", self.file_bytes, self.weights_reason),
            *kinds,
            ("cache", self.cache_bytes, f"{self.cache_format}, {sequences}{self.context:,} tokens"),
            ("states", self.state_bytes, states),
            ("scratch", self.scratch_bytes, f"steps of up to {self.batch_tokens} tokens"),
        ]
        return [row for row in rows if row[1]]

    @property
    def _slot_bytes(self) -> int:
        return self.state_bytes // self.n_slots if self.n_slots else 0

    def _verdict(self) -> str:
        numbers = (
            f"{text(self.room_bytes)} of {text(self.available_bytes)} available, "
            f"{text(self.reserve_bytes)} left to the system"
        )
        if self.fits:
            return f"fits: {numbers}"
        return f"does not fit, weights will be read from disk again: {numbers}"


_WORDS: Mapping[Place, str] = {"read": "read", "map": "mapped"}
