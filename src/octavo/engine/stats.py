"""Counters and timings of one engine. The engine thread writes, anyone reads."""

from __future__ import annotations

from dataclasses import asdict, field

from octavo.record import dataclass


@dataclass
class Stats:
    """Totals since the engine started, and what it holds now."""

    requests: dict[str, int] = field(default_factory=dict)  # ended, by finish reason
    prompt_tokens: int = 0  # computed
    cached_tokens: int = 0  # found in the cache instead
    generated_tokens: int = 0
    prefill_steps: int = 0
    decode_steps: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0  # drafting and sampling included
    draft_seconds: float = 0.0
    sample_seconds: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0  # times a sequence lost its memory to another and began again
    cache: dict[str, int] = field(default_factory=dict)  # `PrefixStore.figures`
    running: int = 0
    waiting: int = 0

    def snapshot(self) -> dict[str, object]:
        """A copy as plain values, and the rates that follow from them."""
        return {
            **asdict(self),
            "prompt_tokens_per_second": _rate(self.prompt_tokens, self.prefill_seconds),
            "generated_tokens_per_second": _rate(self.generated_tokens, self.decode_seconds),
            "accepted_per_draft": _rate(self.accepted_tokens, self.drafted_tokens),
        }


def _rate(amount: float, per: float) -> float:
    return amount / per if per else 0.0
