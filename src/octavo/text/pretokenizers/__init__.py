"""How byte-level BPE vocabularies cut text into words before merging: one rule a file.

The stem is the name in `tokenizer.ggml.pre`, with `_` for `-` and `.`. A file holds:

- `PATTERNS`: regular expressions as published. Each cuts the pieces left by the one before;
  matches and what lies between them are pieces alike.
- `ALIASES`: other names with the same rule.
- `ADD_BOS`: whether BOS goes in front where the file does not say.
- `IGNORE_MERGES`: a word that is a token is that token, whatever the merges give.
- `CLEAN_SPACES`: the vocabulary's own detokeniser takes the space before punctuation away.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo import registry
from octavo.errors import UnsupportedError
from octavo.text.unicode_regex import compile_for_ascii, compile_pattern

_PACKAGE = "text.pretokenizers"


class PreTokenizer(NamedTuple):
    """One rule. Its patterns are compiled when a text needs them."""

    name: str
    patterns: tuple[str, ...]
    add_bos: bool
    ignore_merges: bool
    clean_spaces: bool

    def split(self, text: str) -> list[str]:
        """The pieces of `text`; joined they are `text` again."""
        compiled = compile_for_ascii if text.isascii() else compile_pattern
        pieces = [text]
        for pattern in self.patterns:
            cut = compiled(pattern).split
            pieces = [p for piece in pieces for p in cut(piece) if p]
        return pieces


def load(name: str) -> PreTokenizer:
    """The rule with that name in `tokenizer.ggml.pre`.

    Raises:
        UnsupportedError: no rule has this name.
    """
    stem = _stem(name)
    module = registry.find(_PACKAGE, stem, "pre-tokenizer")
    return PreTokenizer(
        name=stem,
        # One group around each pattern: `split` then returns the matches too.
        patterns=tuple(f"({p})" for p in module.PATTERNS),
        add_bos=module.ADD_BOS,
        ignore_merges=module.IGNORE_MERGES,
        clean_spaces=module.CLEAN_SPACES,
    )


def _stem(name: str) -> str:
    plain = name.replace("-", "_").replace(".", "_")
    stems = registry.names(_PACKAGE)
    if plain in stems:
        return plain
    for stem in stems:
        if name in registry.find(_PACKAGE, stem, "pre-tokenizer").ALIASES:
            return stem
    raise UnsupportedError(
        f"The file's pre-tokenizer {name!r} is not supported", f"Known are: {', '.join(stems)}."
    )
