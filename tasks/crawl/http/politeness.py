"""Politeness to hosts: limits of speed and number, and the book of requests sent and pauses asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from yarl import URL

from storage.errors import StorageError, WrongInput
from storage.root import Root
from tasks.crawl.http.quota import Client, Hold, Quota, QuotaFile, midnight_after
from tasks.crawl.http.redirects import host_of
from tasks.crawl.http.responses import RateLimits
from tasks.models.retry import RetryPolicy

_FILE = "state/quotas.json"
_MINUTE = timedelta(minutes=1)
_NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Politeness:
    """The limits that requests keep to, times in seconds; a number out of its range raises WrongInput."""

    delay: float = 1.0  # least time between the starts of two requests to one host; 0: none
    concurrency: int = 4  # most requests under way to one host, from 1
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    # Other hosts (`host`, or `host:port` if the port is not the usual one) that a redirect may lead to; they
    # never see credentials.
    redirect_hosts: frozenset[str] = frozenset()
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # of clients without a token, by service
    token_quotas: Mapping[str, Quota] = field(default_factory=dict)  # of clients with a token, by service
    # Services that share a host (`host/prefix`, see `service_of`): each has quotas and pauses of its own.
    services: frozenset[str] = frozenset()
    connect_timeout: float = 15.0  # longest time of connecting, above 0
    timeout: float = 120.0  # longest time of a request with its body, above 0

    def __post_init__(self) -> None:
        if self.delay < 0 or self.concurrency < 1 or min(self.connect_timeout, self.timeout) <= 0:
            raise WrongInput(
                f"delay {self.delay} must be at least 0, concurrency {self.concurrency} at least 1, "
                f"time-outs {self.connect_timeout} and {self.timeout} above 0"
            )

    def client(self, url: URL, fingerprint: str | None) -> Client:
        """Return the client of a URL's service that uses the token with that fingerprint, or no token."""
        host, asked = host_of(url), f"{service_of(url)}/"
        within = (name for name in self.services if asked.startswith(f"{name}/"))
        service = max(within, key=len, default=host)
        quotas = self.token_quotas if fingerprint else self.quotas
        return Client(host, fingerprint or "anonymous", quotas.get(service, _NO_QUOTA), service)


def service_of(url: URL) -> str:
    """Return the name of the service whose base URL is `url`: `host[:port]`, and its path if it has one."""
    return f"{host_of(url)}{url.path.rstrip('/')}"


class QuotaBook:
    """Requests sent to each host, and pauses that hosts asked for; kept in `state/quotas.json` below a root.

    A request is recorded before it goes out, so that a killed process does not forget it. The file is read
    each time: books of one root agree. Tokens are known by their fingerprints.
    """

    def __init__(self, root: Root) -> None:
        self._root, self._lock = root, threading.Lock()
        self._sent: dict[str, datetime] = {}  # when the last request left, by host
        self._left: dict[str, int] = {}  # the hosts' last numbers of requests left, by client

    def admit(self, client: Client, now: datetime, *, delay: float = 0.0) -> Hold | None:
        """Record a request and return None, or record nothing and return why it must wait.

        `delay` is the least time since the last request to the host, in seconds. As all methods, it raises
        StorageError if the book is damaged or cannot be written.
        """
        with self._open() as book:
            bucket = book.bucket(client)
            hold = book.pause(client, now) or bucket.hold(client.quota, now)
            hold = hold or book.spacing(client.host, now, delay, self._sent)
            if hold is None:
                bucket.take(client.quota, now)
                if delay > 0:
                    book.sent[client.host] = now.timestamp()
            book.keep(client, bucket)
        return hold

    def sent(self, host: str, now: datetime) -> None:
        """Note that the last request admitted to `host` left at `now`, after the connection was made."""
        self._sent[host] = now

    def pause(self, key: str, until: datetime, now: datetime, reason: str) -> None:
        """Admit no request before `until`; an end earlier than the known one changes nothing.

        `key` is a service, or the key of one of its clients; `reason` is `quota`, `rate-limited` or `minute`.
        """
        with self._open() as book:
            known = book.pauses.get(key)
            if known is None or known["until"] < until.timestamp():
                since = now.timestamp()
                book.pauses[key] = {"since": since, "until": until.timestamp(), "reason": reason}

    def heed(self, client: Client, limits: RateLimits, now: datetime) -> None:
        """Record the limits that a host stated for a client."""
        if limits == RateLimits():
            return
        left = limits.left if limits.left_today is None else limits.left_today
        if left is not None:
            self._left[client.key] = left
        if limits.left == 0 and limits.reset is not None and limits.reset > now:
            self.pause(client.key, limits.reset, now, "quota")
        if limits.left_today == 0:
            self.pause(client.key, midnight_after(now), now, "quota")
        if limits.left_this_minute == 0 and client.quota.per_minute is None:
            self.pause(client.key, now + _MINUTE, now, "minute")
        with self._open() as book:
            bucket = book.bucket(client)
            bucket.lower(client.quota, now, minute=limits.left_this_minute, day=limits.left_today)
            book.keep(client, bucket)

    def left(self, client: Client, now: datetime) -> int | None:
        """Return how many requests the client has left, the least of the host's number and our count.

        None: any number.
        """
        with self._open() as book:
            hold = book.pause(client, now)
            counted = book.bucket(client).left_today(client.quota, now)
        if hold is not None and hold.reason == "quota":
            return 0
        said = self._left.get(client.key) or None  # a stated 0 meant a pause, which is over
        return min((left for left in (counted, said) if left is not None), default=None)

    @contextmanager
    def _open(self) -> Iterator[QuotaFile]:
        with self._lock:
            before = self._root.read_json(_FILE) or {}
            try:
                page = QuotaFile(before)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                msg = f"{self._root.at(_FILE)} is damaged ({error!r}): delete it; quotas are counted anew"
                raise StorageError(msg) from error
            yield page
            after = page.record()
            if after != QuotaFile(before).record():
                self._root.write_json(_FILE, after)
