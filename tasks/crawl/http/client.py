"""The HTTP client of every source: polite to hosts, bounded in what it reads, careful with credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random as _random
import types
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from storage.errors import StorageError
from tasks.crawl.http.errors import HttpTerminal
from tasks.crawl.http.politeness import Politeness, QuotaBook
from tasks.crawl.http.redirects import REDIRECTS, host_of, next_hop, web_url
from tasks.crawl.http.responses import is_page
from tasks.crawl.http.retry import retrying
from tasks.crawl.http.secrets import Secret
from tasks.crawl.http.transport import Call, Response, Sender

_MOST_REDIRECTS = 5
_START = 4096  # bytes of a body that an error carries


def utc_now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of status 200, or 304 where it was asked for.

    Args:
        url: Where it came from after redirects, without the query.
        status: 200 or 304.
        headers: Names in lower case.
        body: Unpacked; empty for 304 and for downloads.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401
        """Return the body's JSON value.

        Raises:
            HttpTerminal: `html` where it is a page for people, `not-json` where it is anything else.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            page = is_page(self.headers, self.body)
            reason, found = ("html", "a page for people") if page else ("not-json", "something else")
            detail = f"JSON was expected, {found} came"
            raise HttpTerminal(
                reason, self.url, detail, status=self.status, body=self.body[:_START], headers=self.headers
            ) from None


class Http:
    """Fetches what it is asked for, each host at its pace; use it in an `async with` statement, in one loop.

    Args:
        limits: How politely.
        book: Remembers what hosts were asked and said, over restarts.
        clock: The time, UTC.
        sleep: Waits so many seconds; `clock` must go on meanwhile.
        random: Draws evenly from [0, 1).
    """

    def __init__(
        self,
        limits: Politeness,
        book: QuotaBook,
        *,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._limits = limits
        self._sleep = sleep
        self._random = random
        self._sender = Sender(limits, book, clock=clock, sleep=sleep)

    async def __aenter__(self) -> Http:
        self._sender.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        await self._sender.close()

    @property
    def requests(self) -> int:
        """Requests sent so far, retries and redirects included."""
        return self._sender.requests

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: Secret | None = None,
        etag: str | None = None,
        max_bytes: int = 20_000_000,
    ) -> Answer:
        """Return the answer to a GET request.

        Args:
            url: An http or https URL.
            params: Added to its query, encoded.
            headers: Sent along, to the URL's own host only, `Accept` apart.
            token: Sent as a bearer token, to the URL's own host only.
            etag: What the caller has already; where that is still so, the answer is 304 and empty.
            max_bytes: The most the body may be, unpacked.

        Raises:
            HttpTerminal: Asking again cannot help.
            HttpTransient: It did not work now, nor when tried again.
            QuotaExhausted: The host allows no more for now; no request was sent for it, or the last.
        """
        where = web_url(url).update_query(dict(params)) if params else web_url(url)
        body = BytesIO()
        reply = await self._fetch(Call(where, headers or {}, token or Secret(), etag, max_bytes, body))
        return Answer(reply.url, reply.status, reply.headers, body.getvalue())

    async def download(
        self,
        url: str,
        path: Path,
        *,
        headers: Mapping[str, str] | None = None,
        token: Secret | None = None,
        max_bytes: int = 50_000_000,
    ) -> Answer:
        """Put a body into a file, which appears when it is whole; return the answer without its body.

        Args:
            url: As for `get`, like the others.
            path: The file; its folder is made where there is none.
            headers: Sent along.
            token: Sent as a bearer token.
            max_bytes: The most the file may be.

        Raises:
            HttpTerminal: Asking again cannot help; as for `get`.
            HttpTransient: It did not work now; as for `get`.
            StorageError: The file cannot be written.
        """
        where, asked = web_url(url), {"Accept-Encoding": "identity", **(headers or {})}
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as sink:
                reply = await self._fetch(Call(where, asked, token or Secret(), None, max_bytes, sink))
            beside.replace(path)
        except OSError as error:
            msg = f"{path} cannot be written ({error.strerror})"
            raise StorageError(msg) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return Answer(reply.url, reply.status, reply.headers, b"")

    def quota_left(self, url: str) -> int | None:
        """Return how many requests the URL's host allows us yet; None: it has set no limit.

        A host that was asked with and without a token is answered for as it was asked last.
        """
        return self._sender.left(host_of(web_url(url)))

    async def _fetch(self, call: Call) -> Response:
        again = retrying(self._limits.retry, sleep=self._sleep, random=self._random)
        return await again(self._follow, call)

    async def _follow(self, call: Call) -> Response:
        """Send a request, and where it is redirected, those that follow from it."""
        call.sink.seek(0)
        call.sink.truncate()
        url, home = call.url, True
        for _ in range(_MOST_REDIRECTS + 1):
            reply = await self._sender.send(call, url, home=home)
            if reply.status not in REDIRECTS:
                return reply
            target = next_hop(url, reply.headers.get("location", ""), self._limits.redirect_hosts)
            # Once away, credentials stay away: another host must not choose what they open.
            url, home = target, home and host_of(target) == host_of(url)
        raise HttpTerminal("redirect", call.url, f"there are more than {_MOST_REDIRECTS} redirects")
