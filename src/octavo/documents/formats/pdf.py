"""PDF, page by page, with pypdf."""

from __future__ import annotations

import io
from collections.abc import Iterator

from octavo.documents.document import Page
from octavo.errors import UnsupportedError


def read(data: bytes) -> Iterator[Page]:
    """Each page; one that cannot be read is empty."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError
    except ImportError as error:
        raise UnsupportedError(
            "Reading PDF files needs the package pypdf", "Run: pip install 'octavo[documents]'"
        ) from error
    reader = PdfReader(io.BytesIO(data))
    try:
        is_open = not reader.is_encrypted or bool(reader.decrypt(""))
    except DependencyError as error:
        raise UnsupportedError("The PDF is encrypted", "Save it without encryption.") from error
    if not is_open:
        raise UnsupportedError("The PDF is locked by a password", "Save it without one.")
    n_pages = len(reader.pages)
    has_text = False
    for number in range(n_pages):
        try:
            text = reader.pages[number].extract_text().strip()
        except Exception:  # pypdf raises many kinds on damaged pages; the others are still good
            text = ""
        has_text = has_text or bool(text)
        yield Page(number + 1, text)
    if not has_text:
        raise UnsupportedError(
            f"The PDF has {n_pages} pages and no text: they are pictures, probably scanned",
            "Run a program for text recognition (OCR) on it first.",
        )
