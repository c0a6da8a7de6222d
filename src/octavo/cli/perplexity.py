"""Measure a model's quality on a text, alone or against a saved reference.

The text is cut into windows of --context tokens without overlap, each from an empty cache; the
rest is dropped. Scored are the positions from context/2 on, each by its prediction of the next
token. Models that begin texts with a special token get it as the first token of each window.

With --save-reference every log-probability is written to a file (2 bytes each); with --reference
such a file, made from the same text, is compared: Kullback-Leibler divergence from it (mean,
median, 99.9th percentile) and how often the likeliest token is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from octavo.cli import _screen as screen
from octavo.cli._options import Json, LoadFlags, Model
from octavo.cli._reference import ReferenceWriter, Scored, logprobs, read_reference
from octavo.errors import RequestError, SettingError
from octavo.record import dataclass

if TYPE_CHECKING:
    from octavo.session import Session

Floats = NDArray[np.float32]


def main(
    model: Model,
    load: LoadFlags,
    file: Annotated[
        Path, typer.Option("-f", "--file", exists=True, dir_okay=False, help="The text, UTF-8.")
    ],
    window: Annotated[int, typer.Option("--context", min=4, help="Tokens of a window.")] = 512,
    save_reference: Annotated[
        Path | None, typer.Option("--save-reference", help="Write a reference to this file.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Compare with this reference.")
    ] = None,
    json_output: Json = False,
) -> None:
    """The command."""
    if load.context is not None:
        raise SettingError("--ctx-size has no meaning here", "--context sets the windows.")
    wishes = load.wishes() | {"context": window, "sequences": 1}
    with screen.loaded(model, wishes) as session:
        ids = session.tokenizer.encode(file.read_text(encoding="utf-8"), add_special=True)
        begin = session.tokenizer.bos_id if session.tokenizer.add_bos else None
        windows = cut(ids, window, begin)
        n_rows = len(windows) * len(scored_positions(window))
        scored = Scored.of(ids, window, n_rows, session.n_vocab)
        known = read_reference(reference, scored) if reference else None
        writer = ReferenceWriter(save_reference, scored) if save_reference else None
        tally = Tally()
        with screen.progress("scoring", unit="windows") as advance:
            for done, own in enumerate(windows, 1):
                for targets, rows in score(session, own):
                    if known is not None:
                        tally.compare(rows, known[tally.n_scored : tally.n_scored + len(rows)])
                    if writer is not None:
                        writer.add(rows)
                    tally.add(rows, targets)
                advance(done, len(windows))
        if writer is not None:
            writer.close()
    _print(tally.figures() | {"context": window, "windows": len(windows)}, json_output)


def cut(ids: list[int], context: int, bos_id: int | None) -> list[list[int]]:
    """Whole windows of `context` ids, the first id of each replaced by `bos_id` if there is one.

    Raises:
        RequestError: the text is shorter than one window.
    """
    windows = [ids[i : i + context] for i in range(0, len(ids) - context + 1, context)]
    if not windows:
        raise RequestError(
            f"The text has {len(ids)} tokens, fewer than a window of {context}",
            "Give a longer text or a smaller --context.",
        )
    return [[bos_id, *window[1:]] for window in windows] if bos_id is not None else windows


def scored_positions(context: int) -> range:
    """The positions of a window whose predictions count."""
    return range(context // 2, context - 1)


def score(session: Session, window: list[int]) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """(next ids (n,), log-probabilities (n, V)) of the scored positions, piece by piece."""
    at = scored_positions(len(window)).start
    for logits in session.logits(window, at):
        following = np.array(window[at + 1 : at + 1 + len(logits)], np.int64)
        yield following, log_softmax(logits[: len(following)])  # the last one has none
        at += len(logits)


def log_softmax(logits: Floats) -> Floats:
    """Natural log-probabilities of rows of logits (n, V)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(shifted - np.log(total), np.float32)


@dataclass
class Tally:
    """Sums over all scored positions."""

    n_scored: int = 0
    nll: float = 0.0  # negative log-likelihood, nats
    nll_squared: float = 0.0
    divergences: list[float] = field(default_factory=list)  # KL(reference || this), nats
    n_same_top: int = 0

    def add(self, rows: Floats, targets: NDArray[np.int64]) -> None:
        values = -rows[np.arange(len(rows)), targets].astype(np.float64)
        self.n_scored += len(rows)
        self.nll += float(values.sum())
        self.nll_squared += float((values**2).sum())

    def compare(self, rows: Floats, known: NDArray[np.uint16]) -> None:
        before = logprobs(known)
        divergence = (np.exp(before) * (before - rows)).sum(axis=1, dtype=np.float64)
        self.divergences += divergence.tolist()
        self.n_same_top += int((before.argmax(axis=1) == rows.argmax(axis=1)).sum())

    def figures(self) -> dict[str, Any]:
        """Perplexity with its standard error, and the comparison if there was one."""
        mean = self.nll / self.n_scored
        variance = max(0.0, self.nll_squared / self.n_scored - mean**2)
        perplexity = math.exp(mean)
        figures: dict[str, Any] = {
            "perplexity": round(perplexity, 5),
            "perplexity_error": round(perplexity * math.sqrt(variance / self.n_scored), 5),
            "scored_tokens": self.n_scored,
        }
        if self.divergences:
            kld = np.array(self.divergences)
            figures |= {
                "kld_mean": round(float(kld.mean()), 7),
                "kld_median": round(float(np.median(kld)), 7),
                "kld_99.9": round(float(np.quantile(kld, 0.999)), 7),
                "same_top": round(self.n_same_top / self.n_scored, 5),
            }
        return figures


def _print(figures: dict[str, Any], json_output: bool) -> None:
    if json_output:
        screen.emit(figures)
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        screen.write(f"{name:{width}}  {value}\n")
