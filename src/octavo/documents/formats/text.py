"""Plain text, Markdown, tables with commas, program code: whatever decodes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from octavo.documents.document import Page
from octavo.errors import UnsupportedError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE_BYTES = 1 << 16
_MAX_CONTROL_SHARE = 0.02  # of the characters; more is no text
_MIN_PAIRED_SHARE = 0.8  # of the bytes beyond ASCII
_WHITE = "\t\n\r\f\x1b"


def read(data: bytes) -> Iterator[Page]:
    """The whole text as one piece."""
    text = decode(data)
    sample = text[:_SAMPLE_BYTES]
    n_control = sum(c < " " and c not in _WHITE for c in sample)
    if n_control > len(sample) * _MAX_CONTROL_SHARE:
        raise UnsupportedError(
            "This is no text",
            "Text, Markdown, HTML, CSV, program code, PDF and .docx are read.",
        )
    yield Page(None, text.replace("\r\n", "\n").replace("\r", "\n").strip("\n"))


def decode(data: bytes) -> str:
    """Bytes as text: by a byte-order mark, else UTF-8, else Chinese (GB 18030) or Western."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if _is_chinese(data[:_SAMPLE_BYTES]):
        return data.decode("gb18030", "replace")
    return data.decode("cp1252", "replace")


def _is_chinese(sample: bytes) -> bool:
    """Whether it is GB 18030: its signs are pairs of high bytes, Western ones stand alone."""
    runs = [len(run) for run in re.findall(rb"[\x80-\xff]+", sample)]
    if sum(n for n in runs if n > 1) < sum(runs) * _MIN_PAIRED_SHARE:
        return False
    try:
        codecs.getincrementaldecoder("gb18030")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True
