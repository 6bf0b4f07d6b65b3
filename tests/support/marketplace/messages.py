"""Messages: what a service is asked and what it answers, before HTTP; quotas, and a log of requests."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

# Bytes, a file that is sent piece by piece, or pieces made on the fly (then no length is announced).
Body: TypeAlias = bytes | Path | Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A GET request; header names lower-cased, the path decoded."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def token(self) -> str | None:
        """The credential, whichever way it is sent."""
        scheme, _, value = self.headers.get("authorization", "").partition(" ")
        return value if scheme.lower() in {"bearer", "token"} and value else None


@dataclass(slots=True)
class Reply:
    """An answer, and for the log what kind of thing was asked for, and of which repository."""

    status: int
    body: Body = b""
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "other"
    repository: str | None = None


class Service(Protocol):
    """Answers the requests to one host."""

    def answer(self, asked: Asked) -> Reply: ...


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:  # noqa: ANN401 (any JSON)
    content = json.dumps(value, ensure_ascii=False).encode()
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, content, {"content-type": "application/json; charset=utf-8", **named})


def text_reply(text: str, status: int, kind: str = "text/plain") -> Reply:
    return Reply(status, text.encode(), {"content-type": f"{kind}; charset=utf-8"})


def html_page(status: int) -> Reply:
    """The page of a guard that wants to see a browser."""
    page = "<!DOCTYPE html><html><head><title>Just a moment</title></head><body>Checking you.</body></html>"
    return text_reply(page, status, "text/html")


def with_etag(reply: Reply, asked: Asked) -> Reply:
    """Give an answer its ETag, which differs by credential; where the asker has it already, make it a 304."""
    if reply.status != 200 or not isinstance(reply.body, bytes):
        return reply
    who = asked.headers.get("authorization", "")
    tag = f'W/"{hashlib.sha256(who.encode() + reply.body).hexdigest()}"'
    reply.headers["etag"] = tag
    if tag in asked.headers.get("if-none-match", ""):
        reply.status, reply.body = 304, b""
    return reply


@dataclass(slots=True)
class Window:
    """Uses by asker in stretches of `seconds` that begin at multiples of it since 1970, as UTC days do."""

    seconds: int
    start: int = 0
    used: Counter[str] = field(default_factory=Counter)

    def at(self, now: float) -> Counter[str]:
        """Return what is used at this moment: nothing yet where a new stretch has begun."""
        start = int(now // self.seconds) * self.seconds
        if start != self.start:
            self.start = start
            self.used.clear()
        return self.used

    @property
    def reset(self) -> int:
        """When the stretch ends, seconds since 1970."""
        return self.start + self.seconds


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
