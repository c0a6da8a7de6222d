"""The page for a browser: its files, and rules that let it do nothing but talk to this server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

router = APIRouter()

STATIC = Path(__file__).parents[1] / "static"
_KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing from elsewhere, nothing inline, and no text that becomes markup or code.
POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect", "font")),
        *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")),
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",  # kept, but asked for again: a new version shows at once
}


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page."""
    return _send("index.html", request)


@router.get("/static/{name}", include_in_schema=False)
async def static(name: str, request: Request) -> Response:
    """One of its files."""
    return _send(name, request)


def _send(name: str, request: Request) -> Response:
    """A file with its headers, or 304 if the browser has it."""
    found = files().get(name)
    if found is None:
        raise HTTPException(404)
    body, tag = found
    headers = {**_HEADERS, "etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=_KINDS[Path(name).suffix])


@cache
def files() -> Mapping[str, tuple[bytes, str]]:
    """(bytes, entity tag) of each file by its name; there are few, and they are small."""
    found = {}
    for path in sorted(STATIC.iterdir()):
        if path.suffix in _KINDS:
            body = path.read_bytes()
            found[path.name] = body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return found
