"""Which format a file has: by its first bytes, and by its name where they do not tell."""

from __future__ import annotations

import io
import zipfile
from pathlib import PurePath

from octavo.errors import UnsupportedError

_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_HEAD_BYTES = 1024
# Beginnings of what cannot be read -> what it is, and what to do.
_OTHERS = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file", "Save it as .docx or PDF."),
    (b"{\\rtf", "an RTF file", "Save it as .docx or PDF."),
    (b"\x89PNG", "a picture", "This model reads text only."),
    (b"\xff\xd8\xff", "a picture", "This model reads text only."),
    (b"GIF8", "a picture", "This model reads text only."),
)
_IN_ZIP = (
    ("xl/workbook.xml", "an Excel file", "Save the sheet as CSV."),
    ("ppt/presentation.xml", "a PowerPoint file", "Save it as PDF."),
    ("content.xml", "an OpenDocument file", "Save it as .docx or PDF."),
    ("META-INF/container.xml", "an e-book", "Convert it to PDF or HTML."),
)


def format_of(name: str, data: bytes) -> str:
    """The stem of a module in `formats`.

    Raises:
        UnsupportedError: it is known to be something that is not read.
    """
    head = data[:_HEAD_BYTES]
    if b"%PDF-" in head:
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return _format_in_zip(data)
    for beginning, what, hint in _OTHERS:
        if head.startswith(beginning):
            raise UnsupportedError(f"This is {what}, which is not read", hint)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    is_page = start.startswith((b"<!doctype html", b"<html"))
    return "html" if is_page or PurePath(name).suffix.lower() in _HTML_SUFFIXES else "text"


def _format_in_zip(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())
    if "word/document.xml" in names:
        return "docx"
    for inside, what, hint in _IN_ZIP:
        if inside in names:
            raise UnsupportedError(f"This is {what}, which is not read", hint)
    raise UnsupportedError("This is an archive, which is not read", "Unpack it and give its files.")
