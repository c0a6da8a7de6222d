"""Joining adjacent symbols, best pair first: the slow twin of csrc/merge.cpp."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

from tiny_vocabulary import byte_letters

Rank = Callable[[str, str], float | None]


def merge(symbols: list[str], rank: Rank) -> list[str]:
    """Join neighbours until no pair has a rank. Lowest rank first; of equal ones, the leftmost.

    `symbols` is used up. O(n log n) for n symbols, whatever their text.
    """
    left = list(range(-1, len(symbols) - 1))
    right = list(range(1, len(symbols) + 1))
    queue: list[tuple[float, int, int, str]] = []
    for i in range(len(symbols) - 1):
        value = rank(symbols[i], symbols[i + 1])
        if value is not None:
            queue.append((value, i, i + 1, symbols[i] + symbols[i + 1]))
    heapq.heapify(queue)
    end = len(symbols)
    while queue:
        _, a, b, joined = heapq.heappop(queue)
        # A pair goes stale when either side has grown or has been swallowed ("").
        if not symbols[a] or right[a] != b or symbols[a] + symbols[b] != joined:
            continue
        symbols[a], symbols[b] = joined, ""
        after = right[a] = right[b]
        before = left[a]
        if after < end:
            left[after] = a
            value = rank(joined, symbols[after])
            if value is not None:
                heapq.heappush(queue, (value, a, after, joined + symbols[after]))
        if before >= 0:
            value = rank(symbols[before], joined)
            if value is not None:
                heapq.heappush(queue, (value, before, a, symbols[before] + joined))
    return [s for s in symbols if s]


def byte_pair_ids(word: str, values: dict[str, Any], whole_words: bool) -> list[int]:
    """Ids of one word by the `tokenizer.ggml` lists of a byte-level vocabulary."""
    ids = {text: i for i, text in enumerate(values["tokenizer.ggml.tokens"])}
    ranks: dict[str, int] = {}
    for rank, line in enumerate(values["tokenizer.ggml.merges"]):
        ranks.setdefault(line, rank)
    letters = byte_letters()
    spelled = [letters[byte] for byte in word.encode()]
    if whole_words and "".join(spelled) in ids:
        return [ids["".join(spelled)]]
    pieces = merge(spelled, lambda left, right: ranks.get(f"{left} {right}"))
    return [ids[piece] for piece in pieces if piece in ids]


def scored_ids(text: str, values: dict[str, Any]) -> list[int]:
    """Ids of a text by the `tokenizer.ggml` lists of a vocabulary with scores."""
    ids = {text: i for i, text in enumerate(values["tokenizer.ggml.tokens"])}
    kinds, scores = values["tokenizer.ggml.token_type"], values["tokenizer.ggml.scores"]
    costs = {t: -scores[i] for t, i in ids.items() if kinds[i] in (1, 4) and scores[i] > -math.inf}
    unknown = values.get("tokenizer.ggml.unknown_token_id")
    found: list[int | None] = []
    for piece in merge(list(text.replace(" ", "▁")), lambda a, b: costs.get(a + b)):
        if piece in costs:
            found.append(ids[piece])
        else:
            found += [ids.get(f"<0x{byte:02X}>", unknown) for byte in piece.encode()]
    return [token for token in found if token is not None]
