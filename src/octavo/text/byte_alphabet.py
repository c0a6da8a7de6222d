"""The alphabet in which byte-level vocabularies are written: one printable character a byte.

GPT-2's rule: bytes that are visible in Latin-1 stand for themselves; the others, in order, are the
characters from U+0100 on.
"""

from __future__ import annotations

_VISIBLE = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]

# Latin-1 character of a byte -> its character in the alphabet, and back.
_TO_ALPHABET = {byte: 0x100 + i for i, byte in enumerate(_HIDDEN)}
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


def _bytes_of(char: str) -> bytes:
    code = _FROM_ALPHABET.get(ord(char), ord(char))
    return bytes([code]) if code < 256 else char.encode("utf-8", "surrogateescape")
