"""The application: routes, errors and the door, put together."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException

from octavo import registry
from octavo.errors import OctavoError
from octavo.server.asking import choose_model
from octavo.server.encoding import Json
from octavo.server.faults import Fault, RefusedError, fault_of
from octavo.server.fleet import Fleet
from octavo.server.guard import Guard, Rules
from octavo.server.leaving import ClientGoneError
from octavo.server.record import LOG, Record
from octavo.server.schema import Application, faults_of
from octavo.server.spilling import Watch
from octavo.server.wire.responses_store import ResponseStore

GONE_STATUS = 499  # nobody reads it; the log and the counts do


def make_app(fleet: Fleet, rules: Rules | None = None, slot_folder: Path | None = None) -> FastAPI:
    """The application that serves these models. The first begins to load when the app starts.

    `slot_folder`: where clients may save what slots computed; None: nowhere.
    """
    rules = rules or Rules()

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        fleet.start()
        watching = asyncio.ensure_future(app.state.watch.run())
        yield
        watching.cancel()
        fleet.close()

    app = Application(title="Octavo", lifespan=life, docs_url=None, redoc_url=None)
    app.state.fleet = fleet
    app.state.watch = Watch(fleet)
    app.state.slot_folder = slot_folder
    app.state.responses = ResponseStore()
    app.state.running = WeakValueDictionary()  # request id -> its feed, while it is answered
    for name in registry.names("server.routes"):
        router = registry.find("server.routes", name, "API family").router
        app.include_router(router, dependencies=[Depends(choose_model)], responses=faults_of(name))
    _answer_faults(app)
    app.add_middleware(Guard, rules=rules, tally=fleet.tally)
    if rules.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=rules.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id"],
        )
    return app


def _answer_faults(app: FastAPI) -> None:
    """Have what routes raise answered in the form of their API."""
    ours = (OctavoError, RefusedError)
    for kind in (*ours, RequestValidationError, RecursionError, UnicodeEncodeError):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientGoneError, _answer_nobody)


async def _answer_error(request: Request, error: Exception) -> Json:
    if isinstance(error, RecursionError | UnicodeEncodeError):
        # Taken for the client's. Should one be ours, its place is worth a line.
        place = traceback.extract_tb(error.__traceback__)[-1]
        LOG.info("refused: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
    return _response(request, fault_of(error))


async def _answer_http(request: Request, error: Exception) -> Json:
    """No such path, or not by this method."""
    assert isinstance(error, HTTPException)
    message, path, headers = str(error.detail), request.url.path, dict(error.headers or {})
    if error.status_code == 404:
        message = f"there is no {request.method} {path} here"
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{path} is not asked by {request.method}; use {allowed}"
    if error.status_code == 400:  # FastAPI's, where JSON fails by something other than its form
        is_text = not isinstance(error.__cause__, UnicodeDecodeError)
        why = "nested too deeply; send it flatter" if is_text else "no UTF-8; send it as UTF-8"
        message = f"the body cannot be read as JSON: it is {why}"
    return _response(request, Fault(error.status_code, message), headers)


async def _answer_nobody(request: Request, error: Exception) -> Json:
    return Json({}, GONE_STATUS)


def _response(request: Request, fault: Fault, headers: Mapping[str, str] | None = None) -> Json:
    body = fault.body(request.url.path, Record.of(request).id)
    return Json(body, fault.status, {**fault.headers, **(headers or {})})
