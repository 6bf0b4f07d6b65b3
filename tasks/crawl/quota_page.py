"""One reading of the quota book's file: what it holds, and how that changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tasks.crawl.bucket import Bucket, Hold, Quota


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


class Page:
    """The book's file, opened.

    Args:
        record: What `record` returned: buckets and pauses by key, and when the last request to a host went
            out, by host; times are seconds since the epoch.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: It is something else.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._buckets = {key: Bucket.of(value) for key, value in record.get("buckets", {}).items()}
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

    def bucket(self, client: Client) -> Bucket:
        """Return the client's bucket, a fresh one where it has none."""
        return self._buckets.get(client.key, Bucket())

    def keep(self, client: Client, bucket: Bucket) -> None:
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
