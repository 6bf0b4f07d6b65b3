"""Rendering of the catalogue's pages: one environment, in which every text is visible and escaped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response

from flows.commands.console import minute
from storage.errors import TransientError
from tasks.models.visible import visible

DATA = Path(__file__).parent / "data"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_TRIES = 3
_STATIC = {"catalogue.css": "text/css", "catalogue.js": "text/javascript", "icon.svg": "image/svg+xml"}


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(DATA), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_text,
    )  # fmt: skip
    made.globals["link"] = link_to
    made.filters |= {"minute": lambda moment: minute(moment) or "never", "number": lambda n: f"{n:,}"}
    return made


def render(template: str, **values: Any) -> str:  # noqa: ANN401 (whatever the template shows)
    """Return a page made of a template; texts in `values` are escaped unless they are `Markup`."""
    return _environment().get_template(template).render(**values)


def page_answer(html: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a page as an answer that may load nothing but this server's own style, script and pages."""
    told = {"content-security-policy": POLICY, "cache-control": "no-store", **(headers or {})}
    return Response(html.encode("utf-8", "replace"), status, told, "text/html; charset=utf-8")


def static_answer(name: str) -> Response | None:
    """Return a file that pages load, None if there is none of this name."""
    if name not in _STATIC:
        return None
    # It changes with the program, and a browser should not show new pages in an old style.
    return Response((DATA / name).read_bytes(), 200, {"cache-control": "no-cache"}, _STATIC[name])


def of_one_version(make: Callable[[], str | None]) -> str:
    """Return a page whose parts are of one version; `make` returns None if one was published between them.

    Raises `TransientError` if versions are published faster than the page is made.
    """
    for _ in range(_TRIES):
        if (page := make()) is not None:
            return page
    raise TransientError("versions are published faster than this page is made: ask again in a second")


def link_to(page: str, /, **query: object) -> str:
    """Return the address of a page of this server; parameters that are None or empty are left out."""
    given = {key: value for key, value in query.items() if value not in (None, "", [], ())}
    return f"{page}?{urlencode(given, doseq=True, errors='surrogatepass')}" if given else page


def _text(value: Any) -> Any:  # noqa: ANN401 (whatever a template shows)
    return visible(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
