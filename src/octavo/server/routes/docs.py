"""The API to read and to try, without anything from the network: a page made of /openapi.json."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import RedirectResponse

router = APIRouter()


@router.get("/docs", include_in_schema=False)
@router.get("/redoc", include_in_schema=False)
async def docs() -> RedirectResponse:
    """Where the page is."""
    return RedirectResponse("/static/docs.html")
