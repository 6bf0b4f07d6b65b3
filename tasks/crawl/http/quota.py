"""The quota of a service: its requests a minute and a day, and the count of those sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.errors import WrongInput

_MINUTE = 60.0
_DAYS_KEPT = 7


@dataclass(frozen=True, slots=True)
class Quota:
    """The number of requests that a host allows, at least 1 (else WrongInput); None: it sets no limit."""

    per_minute: int | None = None  # in any 60 seconds
    per_day: int | None = None  # from midnight to midnight UTC

    def __post_init__(self) -> None:
        for limit in (self.per_minute, self.per_day):
            if limit is not None and limit < 1:
                raise WrongInput(f"a quota of {limit} requests allows none: leave the source out instead")


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason for which a request must wait, and for how long."""

    reason: str  # `minute`, `spacing`, `quota` or `rate-limited`
    seconds: float
    until: datetime


@dataclass(slots=True)
class TokenBucket:
    """The requests that one client sent to a host: a token bucket for the minute, a count for the day.

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
        self._settle(now)
        if quota.per_minute is None or len(self.minute) < quota.per_minute:
            return None
        seconds = self.minute[-quota.per_minute] + _MINUTE - now.timestamp()
        return Hold("minute", seconds, now + timedelta(seconds=seconds))

    def take(self, quota: Quota, now: datetime) -> None:
        """Count one request that goes out now."""
        self._settle(now)
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
        self._settle(now)
        if minute is not None and quota.per_minute is not None:
            unknown = quota.per_minute - max(0, minute) - len(self.minute)
            self.minute += [now.timestamp()] * unknown

    def _count(self, now: datetime, requests: int) -> None:
        today = now.date().isoformat()
        self.days[today] = self.days.get(today, 0) + requests

    def _settle(self, now: datetime) -> None:
        """Forget requests that no longer count, and set times ahead of the clock back to it."""
        at, tomorrow = now.timestamp(), (now.date() + timedelta(days=1)).isoformat()
        self.minute = [min(sent, at) for sent in self.minute if sent > at - _MINUTE]
        # Days after tomorrow come from a wrong clock: those requests were sent today.
        if stray := [day for day in self.days if day > tomorrow]:
            self._count(now, sum(self.days.pop(day) for day in stray))
        for day in sorted(self.days)[:-_DAYS_KEPT]:
            del self.days[day]


def midnight_after(now: datetime) -> datetime:
    """Return the end of the UTC day of `now`."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1)


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
        """The key of this client in the quota book."""
        return f"{self.service} {self.name}"


class QuotaFile:
    """The content of the quota book: buckets and pauses by key, and the last request's time by host.

    Times are seconds since the epoch. A damaged `record` raises one of AttributeError, KeyError, TypeError
    and ValueError.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._buckets = {key: TokenBucket.of(value) for key, value in record.get("buckets", {}).items()}
        self.sent = {str(host): float(at) for host, at in record.get("sent", {}).items()}
        self.pauses: dict[str, dict[str, Any]] = {
            key: {"since": float(p["since"]), "until": float(p["until"]), "reason": str(p["reason"])}
            for key, p in record.get("pauses", {}).items()
        }

    def record(self) -> dict[str, Any]:
        """Return the record that the constructor reads."""
        buckets = {key: asdict(bucket) for key, bucket in self._buckets.items()}
        return {"buckets": buckets, "pauses": self.pauses, "sent": self.sent}

    def bucket(self, client: Client) -> TokenBucket:
        """Return the client's bucket, or a new one."""
        return self._buckets.get(client.key, TokenBucket())

    def keep(self, client: Client, bucket: TokenBucket) -> None:
        """Store the client's bucket, if the service sets the client a limit."""
        if client.quota != Quota():
            self._buckets[client.key] = bucket

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
