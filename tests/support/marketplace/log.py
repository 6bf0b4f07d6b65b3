"""What was asked of the services, in the order in which it came in."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Request:
    """One request as it arrived.

    Args:
        at: When, in seconds of a monotonic clock.
        status: What it was answered with; 0 while it is not yet.
        repository: `owner/repo` by its present name, where one was asked about.
        kind: listing, search, repo, commit, tree, refs, zipball, contents, archive, raw, registry or other.
        fault: The kind of fault that was served instead of the answer, or with it.
        ended: When the last piece of its answer so far was about to be sent.
    """

    at: float
    service: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    status: int = 0
    repository: str | None = None
    kind: str = "other"
    fault: str | None = None
    ended: float | None = None


@dataclass(slots=True)
class RequestLog:
    """Counts and measures what came in; a test reads it while the services serve."""

    requests: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, request: Request) -> None:
        with self.lock:
            self.requests.append(request)

    def clear(self) -> None:
        with self.lock:
            self.requests.clear()

    def select(self, service: str | None, kind: str | None, repository: str | None) -> list[Request]:
        with self.lock:
            return [
                request
                for request in self.requests
                if service in {None, request.service}
                and kind in {None, request.kind}
                and (repository is None or (request.repository or "").lower() == repository.lower())
            ]

    def shortest_gap(self, service: str) -> float:
        """Return the least time between two request starts in seconds; infinite for fewer than two."""
        starts = sorted(request.at for request in self.select(service, None, None))
        return min((after - before for before, after in pairwise(starts)), default=float("inf"))

    def most_within(self, service: str, seconds: float) -> int:
        """Return the most requests that began within any stretch of this length."""
        starts = sorted(request.at for request in self.select(service, None, None))
        most, first = 0, 0
        for last, start in enumerate(starts):
            while start - starts[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most

    def most_at_once(self, service: str) -> int:
        """Return the most requests that were being answered at one moment."""
        requests = self.select(service, None, None)
        changes = [(request.at, 1) for request in requests]
        changes += [(request.ended, -1) for request in requests if request.ended is not None]
        most = now = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        return most
