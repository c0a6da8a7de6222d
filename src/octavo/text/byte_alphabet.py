"""The alphabet in which byte-level vocabularies are written: one printable character a byte.

GPT-2's rule: bytes that are visible in Latin-1 stand for themselves; the others, in order, are the
characters from U+0100 on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

_VISIBLE = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]

# Latin-1 character of a byte -> its character in the alphabet, and back.
_TO_ALPHABET = {byte: 0x100 + i for i, byte in enumerate(_HIDDEN)}
_OUTSIDE = re.compile("[^\x00-\xff]")
_FROM_ALPHABET = {char: byte for byte, char in _TO_ALPHABET.items()}


def spell(data: bytes) -> str:
    """Write bytes in the alphabet."""
    return data.decode("latin-1").translate(_TO_ALPHABET)


def unspell(text: str) -> bytes:
    """The bytes that `text` spells; characters outside the alphabet stand for their UTF-8."""
    try:
        return text.translate(_FROM_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join(_bytes_of(char) for char in text)


def unspell_all(texts: Sequence[str]) -> list[bytes]:
    """`unspell` of each text, all at once."""
    whole = "".join(texts).translate(_FROM_ALPHABET)
    data = whole.encode("latin-1", "replace")
    ends = list(accumulate(map(len, texts), initial=0))
    pieces = [data[start:end] for start, end in pairwise(ends)]
    # A "?" may stand for a character outside the alphabet.
    for place in {bisect_right(ends, odd.start()) - 1 for odd in _OUTSIDE.finditer(whole)}:
        pieces[place] = unspell(texts[place])
    return pieces


def _bytes_of(char: str) -> bytes:
    code = _FROM_ALPHABET.get(ord(char), ord(char))
    return bytes([code]) if code < 256 else char.encode("utf-8", "surrogateescape")
