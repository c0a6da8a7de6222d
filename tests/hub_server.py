"""A hub on the loopback address that can misbehave: Hugging Face's and ModelScope's interface."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

PAGE = b"<!DOCTYPE html><html><title>Log in</title></html>"


class Hub:
    """Serves `files` (path in the repository "o/r": bytes). `faults` are used up one a request
    for a file: "cut", "stall", "html", "no_range", "new_etag", "long", "short", "503" and other
    statuses, "garble", or an address to redirect to. `seen` are the requests for files."""

    def __init__(self, files: dict[str, bytes], faults: list[str] | None = None) -> None:
        self.files = files
        self.faults = faults or []
        self.seen: list[dict[str, str]] = []
        self.lists_sha256 = True
        self.release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def listing(self, path: str) -> Any:
        """The answer of an interface for listing files, or None."""
        if path.startswith("/api/models/o/r/tree/main"):
            return [{"type": "directory", "path": "x"}, *map(self._hf_row, self.files)]
        if path.startswith("/api/v1/models/o/r/repo/files"):
            return {"Code": 200, "Data": {"Files": [*map(self._ms_row, self.files)]}}
        return None

    def _hf_row(self, path: str) -> dict[str, Any]:
        row: dict[str, Any] = {"type": "file", "path": path, "size": len(self.files[path])}
        if self.lists_sha256:
            row["lfs"] = {"oid": hashlib.sha256(self.files[path]).hexdigest()}
        return row

    def _ms_row(self, path: str) -> dict[str, Any]:
        digest = hashlib.sha256(self.files[path]).hexdigest()
        return {"Type": "blob", "Path": path, "Size": len(self.files[path]), "Sha256": digest}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            listing = hub.listing(path)
            if listing is not None:
                self.answer(200, json.dumps(listing).encode())
                return
            name = path.partition("/resolve/")[2].partition("/")[2] or path.lstrip("/")
            hub.seen.append({"name": name, **dict(self.headers)})
            body = hub.files.get(name)
            fault = hub.faults.pop(0) if hub.faults else ""
            if body is None:
                self.answer(404, b"")
            elif fault.isdecimal():
                self.answer(int(fault), b"", {"Retry-After": "0"})
            elif fault.startswith("http"):
                self.answer(302, b"", {"Location": fault})
            elif fault == "html":
                self.answer(200, PAGE)
            else:
                self.send_file(body, fault)

        def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def send_file(self, body: bytes, fault: str) -> None:
            tag = '"two"' if fault == "new_etag" else '"one"'
            start, end = self.span(tag, len(body)) if fault != "no_range" else (0, None)
            if start > len(body) or (start == len(body) and start):
                self.answer(416, b"")
                return
            rest = body[start:end]
            self.send_response(206 if start or end else 200)
            self.send_header("ETag", tag)
            if start or end:
                last = start + len(rest) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{len(body)}")
            claimed = len(rest) + {"long": 100, "short": -100}.get(fault, 0)
            self.send_header("Content-Length", str(claimed))
            self.end_headers()
            if fault == "garble":
                rest = rest[:-1] + bytes([rest[-1] ^ 1])
            if fault in ("cut", "stall"):
                rest = rest[: len(rest) // 2]
            with suppress(OSError):  # the other side may have heard enough
                self.wfile.write(rest[:claimed])
            if fault == "stall":
                self.wfile.flush()
                hub.release.wait(20)

        def span(self, tag: str, n_bytes: int) -> tuple[int, int | None]:
            wanted = self.headers.get("Range", "")
            if not wanted or self.headers.get("If-Range", tag) != tag:
                return 0, None
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            return int(first), min(int(last) + 1, n_bytes) if last else None

    return Handler
