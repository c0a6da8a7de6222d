"""The tokens of one model as its file lists them: texts, types, scores, and the ids with a duty."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from octavo.errors import FileFormatError
from octavo.gguf.meta import Metadata, StringArray
from octavo.record import dataclass

NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5
BYTE: Final = 6

# Texts that end an answer in some family. They count as control tokens whatever the file says,
# and a model that writes one stops.
STOP_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "</s>",
    "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<｜end▁of▁sentence｜>",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
)  # fmt: skip
_STOP_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_NO_ID = (-1, 2**32 - 1)
_ID_KEYS = (*_STOP_KEYS, "bos", "unknown", "padding")


class Packed(NamedTuple):
    """Texts in a row, in UTF-8, each behind `gap` bytes that are not its own.

    `data` (bytes,) uint8; `starts` (n + 1,) int64: where each gap begins, and the end.
    """

    data: np.ndarray
    starts: np.ndarray
    gap: int

    def item(self, index: int) -> bytes:
        """The bytes of one text."""
        start, end = self.starts[index : index + 2].tolist()
        return self.data[start + self.gap : end].tobytes()

    def lengths(self) -> np.ndarray:
        """Bytes of each text, (n,) int64."""
        lengths: np.ndarray = np.diff(self.starts) - self.gap
        return lengths


@dataclass(frozen=True)
class Vocabulary:
    """`texts`: as stored (spelled in the byte alphabet for byte-level models).

    `types` (n,) int32, one of the constants above; `scores` (n,) float32, empty if the file has
    none. `named`: ids by the name of their key, for example "eos".
    """

    texts: Sequence[str]
    types: np.ndarray
    scores: np.ndarray
    named: dict[str, int]

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Vocabulary:
        """Read the `tokenizer.ggml` keys; token texts are decoded later, when they are needed.

        Raises:
            FileFormatError: a list has the wrong length or an id is outside the vocabulary.
        """
        texts = string_list(metadata, "tokenizer.ggml.tokens")
        n = len(texts)
        types = _numbers(metadata, "tokenizer.ggml.token_type", n, np.int32)
        scores = _numbers(metadata, "tokenizer.ggml.scores", n, np.float32)
        if not len(types):
            types = np.full(n, NORMAL, np.int32)
        named = {name: _named_id(metadata, name, n) for name in _ID_KEYS}
        return cls(texts, types, scores, {k: v for k, v in named.items() if v is not None})

    @cached_property
    def packed(self) -> Packed:
        """All texts in one."""
        return packed(self.texts)

    def ids_by_text(self, ids: Collection[int]) -> dict[str, int]:
        """Those tokens by their texts, empty ones left out; of equal texts, the last counts."""
        rows = np.array(sorted(ids), np.intp)
        texts = ((self.packed.item(i).decode("utf-8", "surrogateescape"), i) for i in rows.tolist())
        return {text: i for text, i in texts if text}

    def find(self, texts: Collection[str]) -> dict[str, int]:
        """Ids of those texts that are tokens; of equal tokens, the last counts.

        Only tokens of the same lengths and first bytes are looked at: some milliseconds for
        250 000 tokens, where a dictionary of all takes 0.1 s.
        """
        wanted = {text.encode("utf-8", "surrogateescape"): text for text in texts if text}
        lengths = self.packed.lengths()
        is_length = np.zeros(int(lengths.max(initial=0)) + 2, bool)
        is_first = np.zeros(256, bool)
        for item in wanted:
            is_length[min(len(item), len(is_length) - 1)] = True
            is_first[item[0]] = True
        alike = np.flatnonzero(is_length[lengths])
        first = self.packed.data[self.packed.starts[alike] + self.packed.gap]
        found = {}
        for token in alike[is_first[first]].tolist():
            item = self.packed.item(token)
            if item in wanted:
                found[wanted[item]] = token
        return found

    @cached_property
    def _stops(self) -> dict[str, int]:
        return self.find(STOP_TEXTS)

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer: those the file names, and known texts."""
        named = {self.named[key] for key in _STOP_KEYS if key in self.named}
        return frozenset(named | set(self._stops.values()))

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Tokens that steer the model and have no text of their own in an answer."""
        marked = np.flatnonzero((self.types == CONTROL) | (self.types == UNKNOWN))
        return frozenset(marked.tolist()) | set(self._stops.values())

    @cached_property
    def user_defined_ids(self) -> frozenset[int]:
        """Tokens whose text is always one token, in user text too."""
        return frozenset(np.flatnonzero(self.types == USER_DEFINED).tolist()) - self.control_ids


def string_list(metadata: Metadata, key: str) -> Sequence[str]:
    """An array of strings.

    Raises:
        FileFormatError: absent, or not an array of strings.
    """
    entry = metadata.typed(key)
    if entry.kind != "[str]":
        raise FileFormatError(
            f"The metadata key {key!r} has type {entry.kind}, expected an array of strings",
            "The file was made by a faulty converter; use another file of this model.",
        )
    texts: Sequence[str] = entry.value
    return texts


def packed(texts: Sequence[str]) -> Packed:
    """All texts in one: of a file, where they are."""
    if isinstance(texts, StringArray):
        return Packed(*texts.packed())
    items = [text.encode("utf-8", "surrogateescape") for text in texts]
    data = np.frombuffer(b"".join(items), np.uint8)
    return Packed(data, np.cumsum([0, *map(len, items)], dtype=np.int64), 0)


def _named_id(metadata: Metadata, name: str, n: int) -> int | None:
    """The id that the file gives a duty; None if it gives none, or only pretends to.

    Raises:
        FileFormatError: BOS or EOS, which no model runs without, is outside the vocabulary.
    """
    key = f"tokenizer.ggml.{name}_token_id"
    token = metadata.get(key, int, -1)
    if 0 <= token < n:
        return token
    if name in ("bos", "eos") and token not in _NO_ID:
        raise FileFormatError(
            f"{key} is {token}, expected less than the {n} tokens of the vocabulary",
            "The file was made by a faulty converter; use another file of this model.",
        )
    return None


def _numbers(metadata: Metadata, key: str, n: int, dtype: type[np.generic]) -> np.ndarray:
    """An array of n numbers, or an empty one if the key is absent."""
    values = metadata.get(key, np.ndarray, np.empty(0, dtype)).astype(dtype)
    if len(values) not in (0, n):
        raise FileFormatError(
            f"{key} has {len(values)} values, expected one for each of the {n} tokens",
            "The file was made by a faulty converter; use another file of this model.",
        )
    return values
