"""The limiter of requests: their pace, quotas of a minute and a day, and the pauses that servers ask for.

What a server says with a 429, in `Retry-After` and in `x-ratelimit-*`, is kept and heeded here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from yarl import URL

from storage.errors import StorageError
from storage.root import Root
from tasks.crawl.http.responses import (
    HttpTerminal,
    HttpTransient,
    QuotaExhausted,
    RateLimits,
    error_code,
    host_of,
)

_FILE = "state/quotas.json"
_MINUTE = 60.0
_DAYS_KEPT = 7
_TICK = 0.001  # seconds, the least wait: after rounding, a shorter one might not let the clock go on


def utc_now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Quota:
    """The number of requests that a service allows, at least 1; None: it sets no limit."""

    per_minute: int | None = None  # in any 60 seconds
    per_day: int | None = None  # from midnight to midnight UTC


_NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Client:
    """A client of a service, whose requests the service counts.

    `service` is the host, or `host/prefix` for one of several services on a host, as on a mirror.
    """

    host: str
    name: str  # the token's fingerprint, or `anonymous`
    quota: Quota
    service: str

    @property
    def key(self) -> str:
        """The key of this client in the file of quotas."""
        return f"{self.service} {self.name}"


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason for which a request must wait, and for how long."""

    reason: str  # `minute`, `spacing`, `quota` or `rate-limited`
    seconds: float
    until: datetime


@dataclass(slots=True)
class Limiter:
    """Admits requests, each host's at its pace; all limiters of one root agree, and they outlive a run.

    A request is counted in `state/quotas.json` before it leaves, so that a killed process does not forget it;
    the file is read each time. Tokens are known by their fingerprints. All methods raise StorageError if the
    file is damaged or cannot be written.
    """

    root: Root
    delay: float = 1.0  # least seconds between the starts of two requests to one host; 0: none
    concurrency: int = 4  # most requests under way to one host
    longest_wait: float = 60.0  # seconds; a request that would have to wait longer for a server fails
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # of clients without a token, by service
    token_quotas: Mapping[str, Quota] = field(default_factory=dict)  # of clients with a token, by service
    # Services that share a host (`host/prefix`, see `service_of`): each has quotas and pauses of its own.
    services: frozenset[str] = frozenset()
    clock: Callable[[], datetime] = utc_now
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # in which `clock` must go on
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _slots: dict[str, asyncio.Semaphore] = field(default_factory=dict, init=False)
    _sent: dict[str, datetime] = field(default_factory=dict, init=False)  # when the last left, by host
    _left: dict[str, int] = field(default_factory=dict, init=False)  # as servers stated it last, by client
    _last: dict[str, Client] = field(default_factory=dict, init=False)  # the last client of each service

    def client(self, url: URL, fingerprint: str | None) -> Client:
        """Return the client of a URL's service that uses the token with that fingerprint, or no token."""
        host, path = host_of(url), f"{service_of(url)}/"
        within = (name for name in self.services if path.startswith(f"{name}/"))
        service = max(within, key=len, default=host)
        quotas = self.token_quotas if fingerprint else self.quotas
        return Client(host, fingerprint or "anonymous", quotas.get(service, _NO_QUOTA), service)

    @asynccontextmanager
    async def turn(self, client: Client, url: URL) -> AsyncGenerator[None, None]:
        """Wait for a request's turn; it is sent within the `async with`.

        Raises QuotaExhausted, or HttpTransient for a pause that is longer than `longest_wait`.
        """
        self._last[client.service] = client
        async with self._slots.setdefault(client.host, asyncio.Semaphore(self.concurrency)):
            while hold := self.admit(client, self.clock()):
                if hold.reason not in {"minute", "spacing"} and hold.seconds > self.longest_wait:
                    raise _held(hold, url)
                await self.sleep(max(hold.seconds, _TICK))
            yield

    def admit(self, client: Client, now: datetime) -> Hold | None:
        """Count a request and return None, or count nothing and return why it must wait."""
        with self._open() as book:
            bucket = book.bucket(client)
            hold = book.pause(client, now) or bucket.hold(client.quota, now)
            hold = hold or book.spacing(client.host, now, self.delay, self._sent)
            if hold is None:
                bucket.take(client.quota, now)
                if self.delay > 0:
                    book.sent[client.host] = now.timestamp()
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
        """Record the limits that a server stated for a client, whatever its answer was."""
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
            self.pause(client.key, now + timedelta(seconds=_MINUTE), now, "minute")
        with self._open() as book:
            bucket = book.bucket(client)
            bucket.lower(client.quota, now, minute=limits.left_this_minute, day=limits.left_today)

    def refused(
        self, failure: HttpTerminal | HttpTransient, url: URL, client: Client, limits: RateLimits
    ) -> HttpTerminal | HttpTransient:
        """Return the error of a refusing answer, with the wait that a 429 or 403 asks for; record that pause.

        A quota that is used up, or comes back only after `longest_wait`, is QuotaExhausted.
        """
        now = self.clock()
        if isinstance(failure, HttpTerminal):
            return failure
        if error_code(failure.body) == "DAILY_QUOTA_EXCEEDED":
            until = midnight_after(now)
            self.pause(client.key, until, now, "quota")
            return QuotaExhausted(url, until, failed=failure)
        if failure.reason == "rate-limited" and limits.left == 0 and limits.reset is not None:
            failure.wait = max(0.0, (limits.reset - now).total_seconds())
            if failure.wait > self.longest_wait:
                return QuotaExhausted(url, limits.reset, failed=failure)
        if limits.retry_after is not None:
            failure.wait = max(limits.retry_after, failure.wait or 0.0)
            self.pause(client.service, now + timedelta(seconds=limits.retry_after), now, "rate-limited")
        return failure

    def left(self, url: URL) -> int | None:
        """Return how many requests a URL's service allows its last client; None: any number.

        It is the least of the server's number and our count.
        """
        anonymous, now = self.client(url, None), self.clock()
        client = self._last.get(anonymous.service, anonymous)
        with self._open() as book:
            hold = book.pause(client, now)
            counted = book.buckets.get(client.key, TokenBucket()).left_today(client.quota, now)
        if hold is not None and hold.reason == "quota":
            return 0
        stated = self._left.get(client.key) or None  # a stated 0 meant a pause, which is over
        return min((left for left in (counted, stated) if left is not None), default=None)

    @contextmanager
    def _open(self) -> Iterator[_QuotaFile]:
        with self._lock:
            before = self.root.read_json(_FILE) or {}
            try:
                book = _QuotaFile(before)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                msg = f"{self.root.at(_FILE)} is damaged ({error!r}): delete it; quotas are counted anew"
                raise StorageError(msg) from error
            yield book
            after = book.record()
            if after != _QuotaFile(before).record():
                self.root.write_json(_FILE, after)


def service_of(url: URL) -> str:
    """Return the name of the service whose base URL is `url`: `host[:port]`, and its path if it has one."""
    return f"{host_of(url)}{url.path.rstrip('/')}"


def midnight_after(now: datetime) -> datetime:
    """Return the end of the UTC day of `now`."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1)


def _held(hold: Hold, url: URL) -> HttpTransient:
    if hold.reason == "quota":
        return QuotaExhausted(url, hold.until)
    detail = f"the host asked for no requests before {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    failure = HttpTransient("rate-limited", url, detail)
    failure.wait = hold.seconds
    return failure


@dataclass(slots=True)
class TokenBucket:
    """The requests that one client sent to a service: a token bucket for the minute, a count for the day.

    A token of the minute comes back 60 seconds after it was taken: no 60 seconds hold more than the limit. If
    the clock was moved back, requests of what is now tomorrow count as today's.
    """

    days: dict[str, int] = field(default_factory=dict)  # requests by UTC day (ISO date)
    minute: list[float] = field(default_factory=list)  # starts in the last minute, epoch seconds, ascending

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TokenBucket:
        """Return the bucket of a record (`asdict`); raise KeyError, TypeError or ValueError if damaged."""
        days = {str(day): int(count) for day, count in dict(record["days"]).items()}
        return cls(days, sorted(float(at) for at in record["minute"]))

    def hold(self, quota: Quota, now: datetime) -> Hold | None:
        """Return why a request must wait, the day's quota before the minute's; None: it need not."""
        if self.left_today(quota, now) == 0:
            until = midnight_after(now)
            return Hold("quota", (until - now).total_seconds(), until)
        self._expire(now)
        if quota.per_minute is None or len(self.minute) < quota.per_minute:
            return None
        seconds = self.minute[-quota.per_minute] + _MINUTE - now.timestamp()
        return Hold("minute", seconds, now + timedelta(seconds=seconds))

    def take(self, quota: Quota, now: datetime) -> None:
        """Count one request that goes out now."""
        self._expire(now)
        if quota.per_day is not None:
            self._count(now, 1)
        if quota.per_minute is not None:
            self.minute.append(now.timestamp())

    def left_today(self, quota: Quota, now: datetime) -> int | None:
        """Return how many requests the day still allows; None: any number."""
        if quota.per_day is None:
            return None
        today = now.date().isoformat()
        return max(0, quota.per_day - sum(count for day, count in self.days.items() if day >= today))

    def lower(self, quota: Quota, now: datetime, *, minute: int | None, day: int | None) -> None:
        """Lower what is left to the server's numbers (None: not given).

        Higher numbers than ours are not believed: the server has not counted requests that are under way.
        """
        left = self.left_today(quota, now)
        if day is not None and left is not None and day < left:
            self._count(now, left - day)
        self._expire(now)
        if minute is not None and quota.per_minute is not None:
            unknown = quota.per_minute - max(0, minute) - len(self.minute)
            self.minute += [now.timestamp()] * unknown

    def _count(self, now: datetime, requests: int) -> None:
        today = now.date().isoformat()
        self.days[today] = self.days.get(today, 0) + requests

    def _expire(self, now: datetime) -> None:
        """Forget requests that no longer count, and set times ahead of the clock back to it."""
        at, tomorrow = now.timestamp(), (now.date() + timedelta(days=1)).isoformat()
        self.minute = [min(sent, at) for sent in self.minute if sent > at - _MINUTE]
        # Days after tomorrow come from a wrong clock: those requests were sent today.
        if stray := [day for day in self.days if day > tomorrow]:
            self._count(now, sum(self.days.pop(day) for day in stray))
        for day in sorted(self.days)[:-_DAYS_KEPT]:
            del self.days[day]


class _QuotaFile:
    """The content of `state/quotas.json`: buckets and pauses by key, the last request's time by host.

    Times are seconds since the epoch. A damaged `record` raises one of AttributeError, KeyError, TypeError
    and ValueError.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.buckets = {key: TokenBucket.of(value) for key, value in record.get("buckets", {}).items()}
        self.sent = {str(host): float(at) for host, at in record.get("sent", {}).items()}
        self.pauses: dict[str, dict[str, Any]] = {
            key: {"since": float(p["since"]), "until": float(p["until"]), "reason": str(p["reason"])}
            for key, p in record.get("pauses", {}).items()
        }

    def record(self) -> dict[str, Any]:
        """Return the record that the constructor reads."""
        buckets = {key: asdict(bucket) for key, bucket in self.buckets.items()}
        return {"buckets": buckets, "pauses": self.pauses, "sent": self.sent}

    def bucket(self, client: Client) -> TokenBucket:
        """Return the client's bucket, or a new one, which is kept if there is a limit to count by."""
        found = self.buckets.get(client.key, TokenBucket())
        if client.quota != _NO_QUOTA:
            self.buckets[client.key] = found
        return found

    def pause(self, client: Client, now: datetime) -> Hold | None:
        """Return the longest pause that the service asked of all clients, or of this one."""
        at = now.timestamp()
        for key, pause in list(self.pauses.items()):
            if at < pause["since"]:  # the clock was moved back: the pause keeps its length
                pause |= {"since": at, "until": at + pause["until"] - pause["since"]}
            if pause["until"] <= at:
                del self.pauses[key]
        ours = [self.pauses[key] for key in (client.service, client.key) if key in self.pauses]
        if not ours:
            return None
        longest = max(ours, key=lambda pause: float(pause["until"]))
        until = datetime.fromtimestamp(longest["until"], UTC)
        return Hold(longest["reason"], longest["until"] - at, until)

    def spacing(self, host: str, now: datetime, delay: float, left: dict[str, datetime]) -> Hold | None:
        """Return the wait until `delay` seconds have passed since the last request to a host.

        `left` tells when the last request to each host really left, if that is known.
        """
        at = now.timestamp()
        if self.sent.get(host, at) > at or left.get(host, now) > now:  # the clock was moved back
            self.sent[host], left[host] = at, now
        if delay <= 0 or not (host in self.sent or host in left):
            return None
        last = max(self.sent.get(host, 0.0), left[host].timestamp() if host in left else 0.0)
        seconds = last + delay - at
        return Hold("spacing", seconds, now + timedelta(seconds=seconds)) if seconds > 0 else None
