"""documents/: files of every kind, damaged ones, and those that try to take too much."""

from __future__ import annotations

import base64
import contextlib
import io
import zipfile
import zlib
from pathlib import Path

import docx
import httpx
import pytest
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from hypothesis import given
from hypothesis import strategies as st

from octavo.documents.__main__ import answer_to
from octavo.documents.document import Document, Limits, Page
from octavo.documents.formats.text import decode
from octavo.documents.reading import document_of, question_of, read, read_file
from octavo.errors import FileFormatError, NotFoundError, OctavoError, UnsupportedError
from serving import PLAIN, ScriptedSession, serving


def make_pdf(*texts: str, packed: bytes | None = None) -> bytes:
    """A PDF with one page for each text; `packed` replaces the stream of the first page."""
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(texts)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(texts)} /Kids [{kids}] >>".encode(),
    ]
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    for i, text in enumerate(texts):
        parent = "/Type /Page /Parent 2 0 R /MediaBox [0 0 600 800]"
        page = f"<< {parent} /Resources << /Font << /F {font} >> >> /Contents {4 + 2 * i} 0 R >>"
        body = f"BT /F 12 Tf 50 700 Td ({text}) Tj ET".encode() if text else b""
        kind = ""
        if packed is not None and i == 0:
            body, kind = packed, "/Filter /FlateDecode "
        stream = f"<< {kind}/Length {len(body)} >>\nstream\n".encode() + body + b"\nendstream"
        objects += [page.encode(), stream]
    out, places = io.BytesIO(b"%PDF-1.4\n"), []
    out.seek(0, io.SEEK_END)
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n".encode() + body + b"\nendobj\n")
    start = out.tell()
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    n = len(objects) + 1
    out.write(f"xref\n0 {n}\n0000000000 65535 f \n{rows}".encode())
    out.write(f"trailer << /Size {n} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode())
    return out.getvalue()


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("Contract", 0)
    document.add_heading("Scope", 1)
    document.add_paragraph("The first clause.")
    document.add_paragraph("one item", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for row, texts in zip(table.rows, (("part", "price"), ("oak", "12")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    changed = document.add_paragraph("kept ")
    for tag, words in (("w:ins", "new"), ("w:del", "old")):
        change, run, text = OxmlElement(tag), OxmlElement("w:r"), OxmlElement("w:t")
        text.text = words
        run.append(text)
        change.append(run)
        changed._p.append(change)
    document.add_page_break()
    document.add_paragraph("On the second page.")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def read_here(name: str, data: bytes, limits: Limits | None = None) -> Document:
    """As `read`, in this process: quicker, and for files that do no harm."""
    return document_of(name, answer_to(question_of(name, limits or Limits()), data))


def test_pdf_keeps_its_pages() -> None:
    found = read("a.pdf", make_pdf("The first.", "", "The third."))
    assert found.format == "pdf"
    assert [page.number for page in found.pages] == [1, 2, 3]
    assert found.pages[0].text == "The first."
    assert found.n_pages == 3
    assert found.text == "[page 1]\nThe first.\n\n[page 2]\n\n\n[page 3]\nThe third."


def test_word_keeps_order_headings_tables_and_pages() -> None:
    found = read_here("a.docx", make_docx())
    first, second = found.pages
    assert (first.number, second.number) == (1, 2)
    assert second.text == "On the second page."
    lines = [line for line in first.text.split("\n") if line]
    assert lines == [
        *("# Contract", "# Scope", "The first clause.", "- one item"),
        *("part | price", "oak | 12", "kept new"),
    ]


def test_word_pages_are_those_that_word_drew() -> None:
    document = docx.Document()
    document.add_paragraph("one")
    document.add_page_break()
    run = document.add_heading("two", 2).runs[0]
    drawn = OxmlElement("w:lastRenderedPageBreak")
    run._r.insert(0, drawn)
    out = io.BytesIO()
    document.save(out)
    assert [p.text for p in read_here("a.docx", out.getvalue()).pages] == ["one", "## two"]


def test_word_footnotes() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Said")
    reference = OxmlElement("w:footnoteReference")
    reference.set(qn("w:id"), "2")
    run = paragraph.add_run()
    run._r.append(reference)
    out = io.BytesIO()
    document.save(out)
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    changed = io.BytesIO()
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "word/_rels/document.xml.rels":
                rel = f'<Relationship Id="rN" Type="{kind}" Target="footnotes.xml"/>'
                data = data.replace(b"</Relationships>", rel.encode() + b"</Relationships>")
            new.writestr(name, data)
        note = "<w:p><w:r><w:t>by whom</w:t></w:r></w:p>"
        notes = f'<w:footnote w:id="2">{note}</w:footnote>'
        text = f'<w:footnotes xmlns:w="{space}">{notes}</w:footnotes>'
        new.writestr("word/footnotes.xml", text)
    assert read_here("a.docx", changed.getvalue()).text == "Said[^2]\n\n[^2]: by whom"


def test_html_is_what_a_reader_sees() -> None:
    page = """<!doctype html><html><head><title>T</title><style>p {}</style></head><body>
    <h2>Head</h2><p>One <b>bold</b>
    line.<br>Next<script>alert("no")</script></p><ul><li>a<li>b</ul>
    <table><tr><th>x<th>y</tr><tr><td>1<td>&lt;2</tr></table><pre>  kept
    here</pre></body>"""
    found = read_here("a.txt", page.encode())
    assert found.format == "html"
    text = found.text
    assert text.startswith("T\n\n## Head\n\nOne bold line.\nNext")
    assert "\n- a\n- b\n" in text
    assert "x | y\n1 | <2" in text
    assert "kept\n    here" in text
    assert "alert" not in text
    assert "p {}" not in text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("Straße".encode("utf-8-sig"), "Straße"),
        ("Straße".encode("utf-16"), "Straße"),
        ("Straße".encode("cp1252"), "Straße"),
        ("合同第一条，乙方".encode("gb18030"), "合同第一条，乙方"),
        (b"a,b\r\n1,2\r\n", "a,b\n1,2"),
        (b"", ""),
    ],
)
def test_plain_text_of_any_encoding(data: bytes, expected: str) -> None:
    assert read_here("a.csv", data).text == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff")))
def test_utf8_is_read_as_it_is(text: str) -> None:
    assert decode(text.encode()) == text


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "old Office file"),
        ("a.rtf", b"{\\rtf1 x}", "RTF"),
        ("a.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "picture"),
        ("a.bin", bytes(range(256)) * 4, "no text"),
    ],
)
def test_what_is_not_read_is_named(name: str, data: bytes, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words) as caught:
        read_here(name, data)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("inside", "words"),
    [("xl/workbook.xml", "Excel"), ("content.xml", "OpenDocument"), ("a", "archive")],
)
def test_other_packages_are_named(inside: str, words: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(inside, "x")
    with pytest.raises(UnsupportedError, match=words):
        read_here("a.docx", out.getvalue())


@pytest.mark.parametrize("size", [20, 200, -1, -200])
def test_truncated_word_files_are_damaged(size: int) -> None:
    with pytest.raises(OctavoError, match=r"a\.docx: "):
        read_here("a.docx", make_docx()[:size])


@pytest.mark.parametrize("size", [20, 200])
def test_truncated_pdf_files_are_damaged(size: int) -> None:
    with pytest.raises(OctavoError, match=r"a\.pdf: "):
        read_here("a.pdf", make_pdf("Hello.")[:size])


def test_scanned_pages_have_no_text() -> None:
    with pytest.raises(UnsupportedError, match="2 pages and no text"):
        read_here("a.pdf", make_pdf("", ""))


def test_pages_that_go_in_a_circle() -> None:
    data = make_pdf("x").replace(b"/Kids [3 0 R]", b"/Kids [2 0 R]")
    with pytest.raises(OctavoError):
        read_here("a.pdf", data, Limits(seconds=20))


def test_long_texts_are_cut_and_say_so() -> None:
    found = read_here("a.txt", b"x" * 1000, Limits(max_characters=100))
    assert found.is_cut
    assert found.text == "x" * 100
    pages = read_here("a.pdf", make_pdf("a", "b", "c"), Limits(max_pages=2))
    assert pages.is_cut
    assert [page.text for page in pages.pages] == ["a", "b"]


def test_files_that_are_too_large() -> None:
    with pytest.raises(FileFormatError, match="larger than 1 MiB"):
        read("a.txt", b"x" * ((1 << 20) + 1), Limits(max_bytes=1 << 20))


def test_bomb_in_a_pdf_takes_no_more_memory_than_allowed() -> None:
    packed = zlib.compress(b"(x) Tj " * (10 << 20), 1)
    with pytest.raises(OctavoError):
        read("a.pdf", make_pdf("x", packed=packed), Limits(memory_bytes=120 << 20))


def test_bomb_in_a_word_file() -> None:
    out = io.BytesIO()
    whole = zipfile.ZipFile(io.BytesIO(make_docx()))
    with whole as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name in old.namelist():
            is_body = name == "word/document.xml"
            new.writestr(name, b" " * (150 << 20) if is_body else old.read(name))
    with pytest.raises(FileFormatError, match="takes more than 120 MiB"):
        read("a.docx", out.getvalue(), Limits(memory_bytes=120 << 20))


def test_entities_of_a_word_file_are_not_expanded(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not tell")
    entity = f'<!DOCTYPE w [<!ENTITY s SYSTEM "{secret.as_uri()}">]>'
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(make_docx())) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "word/document.xml":
                head, _, body = data.partition(b"?>")
                data = head + b"?>" + entity.encode() + body.replace(b"The first", b"&s;")
            new.writestr(name, data)
    try:
        text = read("a.docx", out.getvalue()).text
    except FileFormatError:
        return
    assert "do not tell" not in text


def test_reading_that_takes_too_long() -> None:
    with pytest.raises(FileFormatError, match=r"takes more than 0\.01 seconds"):
        read("a.txt", b"x", Limits(seconds=0.01))


@given(st.binary(max_size=400), st.sampled_from(["a.txt", "a.html"]))
def test_any_bytes_are_text_or_a_known_error(data: bytes, name: str) -> None:
    start = b"<html>" if name == "a.html" else b""
    with contextlib.suppress(UnsupportedError):
        found = read_here(name, start + data, Limits(max_characters=100))
        assert sum(len(page.text) for page in found.pages) <= 100


def test_files_by_path(tmp_path: Path) -> None:
    path = tmp_path / "合同.md"
    path.write_text("# 甲方", encoding="utf-8")
    assert read_file(path) == Document("合同.md", "text", (Page(None, "# 甲方"),))
    with pytest.raises(NotFoundError):
        read_file(tmp_path / "none.txt")


def test_route_needs_no_loaded_model() -> None:
    def ask(address: str, name: str, data: bytes) -> httpx.Response:
        body = {"name": name, "data": base64.b64encode(data).decode()}
        return httpx.post(f"{address}/v1/documents", json=body, timeout=60)

    with serving(ScriptedSession(PLAIN)) as address:
        answer = ask(address, "a.pdf", make_pdf("One.", "Two."))
        assert answer.status_code == 200
        found = answer.json()
        assert found["text"] == "[page 1]\nOne.\n\n[page 2]\nTwo."
        assert found["pages"] == [{"number": 1, "text": "One."}, {"number": 2, "text": "Two."}]
        assert (found["n_pages"], found["format"], found["truncated"]) == (2, "pdf", False)
        assert ask(address, "a.txt", b"plain").json()["n_pages"] is None
        refused = ask(address, "a.png", b"\x89PNG")
        assert refused.status_code == 400
        assert "a.png: This is a picture" in refused.json()["error"]["message"]
        assert ask(address, "a.pdf", b"%PDF-1.4 nothing").status_code == 422
        wrong = httpx.post(f"{address}/v1/documents", json={"name": "a", "data": "%"})
        assert wrong.status_code == 400


@pytest.mark.parametrize("data", ["a", "é" * 4, "a b="])
def test_what_is_no_base64_is_refused(data: str) -> None:
    with serving(ScriptedSession(PLAIN)) as address:
        answer = httpx.post(f"{address}/v1/documents", json={"name": "a.txt", "data": data})
    assert answer.status_code == 400
    assert "no base64" in answer.json()["error"]["message"]
