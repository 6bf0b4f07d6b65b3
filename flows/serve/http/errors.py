"""Errors as HTTP answers: a status, one line that says what to do, and never what the caller sent."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flows.serve.catalogue.routes import error_page, wants_page
from storage.errors import NotPublished, SkilleryError, TransientError, UnknownDocument, Withheld, WrongInput

log = logging.getLogger(__name__)
_NOTHING = "nothing is served yet: `skillery run` publishes what it reads"
_RETRY = {"retry-after": "5"}
_STATUS: tuple[tuple[type[SkilleryError], int], ...] = (
    (UnknownDocument, 404), (Withheld, 451), (WrongInput, 400), (NotPublished, 503), (TransientError, 503),
)  # fmt: skip


def error_answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as every handler, and the gate before them, gives it."""
    found = {"error": message, "status": status}
    return JSONResponse(found, status, headers={"cache-control": "no-store", **(headers or {})})


def _said(request: Request, status: int, message: str, headers: dict[str, str]) -> Response:
    if wants_page(request):
        return error_page(status, message, headers)
    return error_answer(status, message, headers)


def add_handlers(app: FastAPI) -> None:
    """Let an app answer our errors, those of forms and of paths, and unforeseen ones; pages by pages."""

    def ours(request: Request, error: Exception) -> Response:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 503)
        # A caller need not know where the root lies.
        said = _NOTHING if isinstance(error, NotPublished) else str(error)
        return _said(request, status, said, _RETRY if status == 503 else {})

    def form(request: Request, error: Exception) -> Response:
        first: dict[str, Any] = error.errors()[0]  # type: ignore[attr-defined]
        where = ".".join(str(part) for part in first["loc"])
        return _said(request, 400, f"{where}: {first['msg']}: see /docs", {})

    def path(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 (for the types)
        phrase = HTTPStatus(error.status_code).phrase
        return _said(request, error.status_code, f"{phrase}: see /docs", dict(error.headers or {}))

    def unforeseen(request: Request, error: Exception) -> Response:
        log.error("%s cannot be answered", request.url.path, exc_info=error)
        return _said(request, 500, "this is a fault of the server: its log says where", {})

    app.add_exception_handler(SkilleryError, ours)
    app.add_exception_handler(RequestValidationError, form)
    app.add_exception_handler(HTTPException, path)
    app.add_exception_handler(Exception, unforeseen)
