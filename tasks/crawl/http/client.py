"""The HTTP client of every source: polite to hosts, bounded in what it reads, careful with credentials."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as _random
import types
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from storage.errors import StorageError
from tasks.crawl.http.errors import HttpTerminal, HttpTransient, QuotaExhausted
from tasks.crawl.http.politeness import Politeness, QuotaBook
from tasks.crawl.http.redirects import REDIRECTS, host_of, next_hop, web_url
from tasks.crawl.http.responses import Answer
from tasks.crawl.http.secrets import Secret
from tasks.crawl.http.transport import Call, Sender
from tasks.models.retry import retrying

log = logging.getLogger(__name__)
_MOST_REDIRECTS = 5
# Failures after which to ask again; a transient 403 is a rate limit, and 501 will be the answer tomorrow too.
_RETRIED_STATUSES = frozenset({403, 408, 425, 429, 500, 502, 503, 504})
_RETRIED_REASONS = frozenset({"timeout", "connection"})  # of failures without a status


def utc_now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)


class Http:
    """Fetches URLs, each host at its pace; use it in an `async with` statement, in one event loop.

    Args:
        limits: How politely hosts are asked.
        book: Keeps counts of requests and pauses over restarts.
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
        self._sender = Sender(limits, book, clock=clock, sleep=sleep)
        self._retrying = retrying(
            limits.retry,
            again=self._is_passing,
            wait=_wait,
            before_sleep=_log_retry,
            sleep=sleep,
            random=random,
        )

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
            headers: Sent to the URL's own host only, except `Accept`.
            token: Sent as a bearer token, to the URL's own host only.
            etag: Tag of the answer that the caller has; if it still holds, the answer is an empty 304.
            max_bytes: The largest unpacked body.

        Raises:
            HttpTerminal: Asking again cannot help.
            HttpTransient: The request failed now, also when it was sent again.
            QuotaExhausted: The host allows no more for now; the last request was refused, or not sent.
        """
        where = web_url(url).update_query(dict(params)) if params else web_url(url)
        body = BytesIO()
        answer = await self._fetch(Call(where, headers or {}, token or Secret(), etag, max_bytes, body))
        return replace(answer, body=body.getvalue())

    async def download(
        self,
        url: str,
        path: Path,
        *,
        headers: Mapping[str, str] | None = None,
        token: Secret | None = None,
        max_bytes: int = 50_000_000,
    ) -> Answer:
        """Download a body into `path`, which appears when it is whole; return the answer without its body.

        Arguments are those of `get`; the folder of `path` is made if there is none.

        Raises:
            HttpTerminal, HttpTransient: As for `get`.
            StorageError: The file cannot be written.
        """
        where, asked = web_url(url), {"Accept-Encoding": "identity", **(headers or {})}
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as sink:
                answer = await self._fetch(Call(where, asked, token or Secret(), None, max_bytes, sink))
            beside.replace(path)
        except OSError as error:
            msg = f"{path} cannot be written ({error.strerror})"
            raise StorageError(msg) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return answer

    def quota_left(self, url: str) -> int | None:
        """Return how many requests the URL's service still allows; None: it has set no limit.

        If it was asked both with and without a token, the last kind of request counts.
        """
        return self._sender.left(web_url(url))

    async def _fetch(self, call: Call) -> Answer:
        return await self._retrying(self._follow, call)

    async def _follow(self, call: Call) -> Answer:
        """Send a request, and follow its redirects."""
        call.sink.seek(0)
        call.sink.truncate()
        url, home = call.url, True
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._sender.send(call, url, home=home)
            if answer.status not in REDIRECTS:
                return answer
            target = next_hop(url, answer.headers.get("location", ""), self._limits.redirect_hosts)
            # Once away, credentials stay away: another host must not choose what they open.
            url, home = target, home and host_of(target) == host_of(url)
        raise HttpTerminal("redirect", call.url, f"there are more than {_MOST_REDIRECTS} redirects")

    def _is_passing(self, failure: BaseException | None) -> bool:
        """Tell whether another try may help, after a wait that the policy accepts."""
        if not isinstance(failure, HttpTransient) or isinstance(failure, QuotaExhausted):
            return False
        if not self._limits.retry.accepts(failure.wait):
            return False
        return failure.status in _RETRIED_STATUSES or (
            failure.status is None and failure.reason in _RETRIED_REASONS
        )


def _wait(failure: BaseException | None, own: float) -> float:
    # A wait that the server asked for is in the quota book, where all requests to the host wait for it.
    return 0.0 if isinstance(failure, HttpTransient) and failure.wait is not None else own


def _log_retry(failure: BaseException | None, tried: int) -> None:
    if isinstance(failure, HttpTransient):
        log.info("%s: %s, try %d failed; trying again", failure.url, failure.reason, tried)
