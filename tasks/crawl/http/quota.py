"""The quota of a host: its requests a minute and a day, and the count of those sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.errors import WrongInput

_MINUTE = 60.0
_DAYS_KEPT = 7


@dataclass(frozen=True, slots=True)
class Quota:
    """Requests that a host allows; None: it sets no limit.

    Args:
        per_minute: In any 60 seconds.
        per_day: From midnight to midnight UTC.

    Raises:
        WrongInput: A limit is below 1.
    """

    per_minute: int | None = None
    per_day: int | None = None

    def __post_init__(self) -> None:
        for limit in (self.per_minute, self.per_day):
            if limit is not None and limit < 1:
                msg = f"a quota of {limit} requests allows none: leave the source out instead"
                raise WrongInput(msg)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a request may not go out yet: `minute`, `spacing`, `quota` or `rate-limited`, and until when."""

    reason: str
    seconds: float
    until: datetime


@dataclass(slots=True)
class TokenBucket:
    """What was sent to one host in one name (a token, or none).

    A token of the minute comes back 60 seconds after it was taken, so that no 60 seconds hold more than the
    limit. A clock that was moved back finds the requests of what is now tomorrow, and counts them as today's.

    Args:
        days: Requests a UTC day, by ISO date.
        minute: When the requests of the last minute went out, seconds since the epoch, ascending.
    """

    days: dict[str, int] = field(default_factory=dict)
    minute: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TokenBucket:
        """Return the bucket that `record` holds.

        Raises:
            KeyError, TypeError, ValueError: It holds none.
        """
        days = {str(day): int(count) for day, count in dict(record["days"]).items()}
        return cls(days, sorted(float(at) for at in record["minute"]))

    def record(self) -> dict[str, Any]:
        """Return what `of` reads."""
        return {"days": self.days, "minute": self.minute}

    def hold(self, quota: Quota, now: datetime) -> Hold | None:
        """Tell what keeps a request back, the day's quota before the minute's; None: it may go out."""
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
            today = now.date().isoformat()
            self.days[today] = self.days.get(today, 0) + 1
        if quota.per_minute is not None:
            self.minute.append(now.timestamp())

    def left_today(self, quota: Quota, now: datetime) -> int | None:
        """Return how many requests the day still allows; None: any number."""
        if quota.per_day is None:
            return None
        today = now.date().isoformat()
        return max(0, quota.per_day - sum(count for day, count in self.days.items() if day >= today))

    def lower(self, quota: Quota, now: datetime, *, minute: int | None, day: int | None) -> bool:
        """Take the server's word for what is left, where it is less than our count; tell whether it was.

        More than our count is not believed: requests that are under way were not in the server's count.
        """
        lowered = False
        left = self.left_today(quota, now)
        if day is not None and left is not None and day < left:
            today = now.date().isoformat()
            self.days[today] = self.days.get(today, 0) + left - day
            lowered = True
        self._settle(now)
        if minute is not None and quota.per_minute is not None:
            unknown = max(0, quota.per_minute - max(0, minute) - len(self.minute))
            self.minute += [now.timestamp()] * unknown
            lowered = lowered or unknown > 0
        return lowered

    def _settle(self, now: datetime) -> None:
        """Forget what no longer counts, and bring what lies ahead of the clock back to it."""
        at = now.timestamp()
        self.minute = [min(sent, at) for sent in self.minute if sent > at - _MINUTE]
        today, tomorrow = (now.date() + timedelta(days=d) for d in (0, 1))
        # Further ahead than tomorrow a clock was wrong: those requests were sent today.
        stray = [day for day in self.days if day > tomorrow.isoformat()]
        if stray:
            moved = sum(self.days.pop(day) for day in stray)
            self.days[today.isoformat()] = self.days.get(today.isoformat(), 0) + moved
        for day in sorted(self.days)[:-_DAYS_KEPT]:
            del self.days[day]


def midnight_after(now: datetime) -> datetime:
    """Return when the UTC day of `now` ends."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Client:
    """Who a host counts: a host, a token's fingerprint or `anonymous`, and what the host allows them."""

    host: str
    name: str
    quota: Quota

    @property
    def key(self) -> str:
        """The name under which the book keeps this client."""
        return f"{self.host} {self.name}"


class QuotaFile:
    """The book's file, opened.

    Args:
        record: What `record` returned: buckets and pauses by key, and when the last request to a host went
            out, by host; times are seconds since the epoch.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: It is something else.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._buckets = {key: TokenBucket.of(value) for key, value in record.get("buckets", {}).items()}
        self.sent = {str(host): float(at) for host, at in record.get("sent", {}).items()}
        self.pauses: dict[str, dict[str, Any]] = {
            key: {
                "since": float(value["since"]),
                "until": float(value["until"]),
                "reason": str(value["reason"]),
            }
            for key, value in record.get("pauses", {}).items()
        }

    def record(self) -> dict[str, Any]:
        """Return what the constructor reads."""
        buckets = {key: bucket.record() for key, bucket in self._buckets.items()}
        return {"buckets": buckets, "pauses": self.pauses, "sent": self.sent}

    def bucket(self, client: Client) -> TokenBucket:
        """Return the client's bucket, a fresh one where it has none."""
        return self._buckets.get(client.key, TokenBucket())

    def keep(self, client: Client, bucket: TokenBucket) -> None:
        """Put the client's bucket back; one without limits is not kept."""
        if client.quota != Quota():
            self._buckets[client.key] = bucket

    def pause(self, client: Client, now: datetime) -> Hold | None:
        """Return the longest pause that the host, or it to this client, has asked for."""
        at = now.timestamp()
        for key, pause in list(self.pauses.items()):
            if at < pause["since"]:  # the clock was moved back: the pause is as long as it was
                pause |= {"since": at, "until": at + pause["until"] - pause["since"]}
            if pause["until"] <= at:
                del self.pauses[key]
        ours = [self.pauses[key] for key in (client.host, client.key) if key in self.pauses]
        if not ours:
            return None
        longest = max(ours, key=lambda pause: float(pause["until"]))
        until = datetime.fromtimestamp(longest["until"], UTC)
        return Hold(longest["reason"], longest["until"] - at, until)

    def spacing(self, host: str, now: datetime, delay: float, left: dict[str, datetime]) -> Hold | None:
        """Return the wait, at most `delay`, until the next request to a host may start.

        Args:
            host: The host.
            now: The time, UTC.
            delay: Least time between two requests, seconds.
            left: When the last request to a host really left, where that is known.
        """
        at = now.timestamp()
        if self.sent.get(host, at) > at or left.get(host, now) > now:  # the clock was moved back
            self.sent[host], left[host] = at, now
        if delay <= 0 or not (host in self.sent or host in left):
            return None
        last = max(self.sent.get(host, 0.0), left[host].timestamp() if host in left else 0.0)
        seconds = last + delay - at
        return Hold("spacing", seconds, now + timedelta(seconds=seconds)) if seconds > 0 else None
