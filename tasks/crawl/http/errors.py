"""The errors of HTTP requests: terminal ones, and transient ones that a later request may not meet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from yarl import URL

from storage.errors import SkilleryError, TerminalError, TransientError

_PRIVATE_HEADERS = frozenset({"location", "set-cookie"})  # they may hold credentials of others


def shown(url: str | URL) -> str:
    """Return a URL for messages and logs: without user, password, query and fragment."""
    try:
        return str(URL(url).with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return str(url).partition("?")[0].rpartition("@")[2]


class HttpFailed(SkilleryError):
    """A request without the answer that was hoped for.

    Args:
        reason: A short stable code.
        url: The URL asked for; shown without its query.
        detail: What was found.
        status: Status of the answer; None if there was none, or if another thing went wrong.
        body: The first 4 KB of the answer.
        headers: Headers of the answer, names in lower case.
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
        self.reason, self.url, self.detail = reason, shown(url), detail
        self.status, self.body = status, body
        kept = {name: value for name, value in (headers or {}).items() if name not in _PRIVATE_HEADERS}
        self.headers: Mapping[str, str] = MappingProxyType(kept)
        super().__init__(f"{self.url}: {detail}")


class HttpTerminal(HttpFailed, TerminalError):
    """A failure that another request cannot mend.

    Reasons: `missing` (404, 410), `unauthorised` (401), `denied` (403), `withdrawn` (451, or a 403 that names
    the DMCA), `html` (a page for people where data was expected), `not-json`, `too-large`, `redirect` (to a
    host that is not allowed), `refused` (anything else).
    """


class HttpTransient(HttpFailed, TransientError):
    """A failure that a later request may not meet.

    Reasons: `rate-limited`, `server` (5xx), `timeout`, `connection` (none, cut, or a damaged body), `quota`.
    `wait` is the wait that the server asked for, in seconds; None if it asked for none.
    """

    wait: float | None = None


class QuotaExhausted(HttpTransient):
    """A host's quota is used up, by our count or by the host's word.

    `until` is the time at which the host answers again; None if it is not known.
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
