"""Errors of a request: terminal ones, and transient ones that a retry may solve."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from yarl import URL

from storage.errors import SkilleryError, TerminalError, TransientError

_TELLING = frozenset({"location", "set-cookie"})  # headers that may carry credentials of others


def shown(url: str | URL) -> str:
    """Return a URL fit for messages and logs: without user, password, query and fragment."""
    try:
        return str(URL(url).with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return str(url).partition("?")[0].rpartition("@")[2]


class HttpFailed(SkilleryError):
    """A request that was not answered as hoped.

    Args:
        reason: A short stable code.
        url: What was asked for; shown without its query.
        detail: What was found.
        status: The status of the answer, None where there was none, or none that mattered.
        body: The first 4 KB of the answer.
        headers: The answer's headers, names in lower case.
    """

    def __init__(
        self,
        reason: str,
        url: str | URL,
        detail: str,
        *,
        status: int | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.reason = reason
        self.url = shown(url)
        self.detail = detail
        self.status = status
        self.body = body
        kept = {name: value for name, value in (headers or {}).items() if name not in _TELLING}
        self.headers: Mapping[str, str] = MappingProxyType(kept)
        super().__init__(f"{self.url}: {detail}")


class HttpTerminal(HttpFailed, TerminalError):
    """Asking again cannot help.

    Reasons: `missing` (404, 410), `unauthorised` (401), `denied` (403), `withdrawn` (451, or a 403 that names
    the DMCA), `html` (a page for people where data was expected), `not-json`, `too-large`, `redirect` (to a
    host that is not allowed), `refused` (anything else).
    """


class HttpTransient(HttpFailed, TransientError):
    """Asking again later may help.

    Reasons: `rate-limited`, `server` (5xx), `timeout`, `connection` (none, cut, or a damaged body), `quota`.
    `wait` is how many seconds the server asked to wait, None where it did not say.
    """

    wait: float | None = None


class QuotaExhausted(HttpTransient):
    """The host answers no more for now: by our own count, or by its word.

    `until` is when it answers again, None where that is not known.
    """

    def __init__(self, url: str | URL, until: datetime | None, *, failed: HttpFailed | None = None) -> None:
        ends = f"until {until:%Y-%m-%d %H:%M} UTC" if until else "for now"
        super().__init__(
            "quota",
            url,
            f"the host's quota is used up {ends}",
            status=failed.status if failed else None,
            body=failed.body if failed else b"",
            headers=failed.headers if failed else None,
        )
        self.until = until
