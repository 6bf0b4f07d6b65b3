"""What a service is asked and answers, before HTTP, also where it is at fault; quotas, a log of requests."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol


@dataclass(slots=True)
class Reply:
    """An answer, and for the log what kind of thing was asked for, and of which repository."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "other"
    repository: str | None = None


class Service(Protocol):
    """Answers the requests to one host."""

    def answer(self, asked: Request) -> Reply: ...


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:  # noqa: ANN401 (any JSON)
    content = json.dumps(value, ensure_ascii=False).encode()
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, content, {"content-type": "application/json; charset=utf-8", **named})


def text_reply(text: str, status: int, kind: str = "text/plain") -> Reply:
    return Reply(status, text.encode(), {"content-type": f"{kind}; charset=utf-8"})


def iso_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def html_page(status: int) -> Reply:
    """The page of a guard that wants to see a browser."""
    page = "<!DOCTYPE html><html><head><title>Just a moment</title></head><body>Checking you.</body></html>"
    return text_reply(page, status, "text/html")


def with_etag(reply: Reply, asked: Request) -> Reply:
    """Give an answer its ETag, which differs by credential; where the asker has it already, make it a 304."""
    if reply.status != 200:
        return reply
    who = asked.headers.get("authorization", "")
    tag = f'W/"{hashlib.sha256(who.encode() + reply.body).hexdigest()}"'
    reply.headers["etag"] = tag
    if tag in asked.headers.get("if-none-match", ""):
        reply.status, reply.body = 304, b""
    return reply


class Window:
    """Uses by asker in stretches of `seconds` that begin at multiples of it since 1970, as UTC days do."""

    def __init__(self, seconds: int) -> None:
        self.seconds, self.start, self.used = seconds, 0, Counter[str]()

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
        status: What it was answered with; 0 while it is not yet.
        repository: `owner/repo` by its present name, where one was asked about.
        kind: listing, search, repo, commit, tree, refs, zipball, contents, archive, raw, registry or other.
    """

    service: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    status: int = 0
    repository: str | None = None
    kind: str = "other"

    @property
    def token(self) -> str | None:
        """The credential, whichever way it is sent."""
        scheme, _, value = self.headers.get("authorization", "").partition(" ")
        return value if scheme.lower() in {"bearer", "token"} and value else None


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour.

    Args:
        kind: `none` answers as if there were no fault: a gap in a script.
        status: Of the HTML page.
        fields: What an answer with missing fields lacks, at whatever depth.
        location: Where a redirect leads.
    """

    kind: Literal["500", "html", "wrong-json", "missing-fields", "secondary", "redirect", "none"]
    status: int = 200
    fields: tuple[str, ...] = ()
    location: str = ""


class Faults:
    """Decides for each request whether it is answered with a fault."""

    def __init__(self) -> None:
        self._scripts: list[tuple[str, list[Fault]]] = []
        self._lock = threading.Lock()

    def script(self, url: str, faults: Iterable[Fault]) -> None:
        """Answer the next requests to a URL with these, one each.

        Args:
            url: `service:/path` or `service:/path?query`, with `*` and `?` as wildcards (a path alone
                stands for every query); the query as it was sent.
            faults: Used up one by one.
        """
        with self._lock:
            self._scripts.append((url, list(faults)))

    def next(self, service: str, path: str, query: str) -> Fault | None:
        """Return the fault for the request that has just come in, None for none."""
        bare = f"{service}:{path}"
        whole = f"{bare}?{query}" if query else bare
        with self._lock:
            for url, faults in self._scripts:
                if faults and (url in {whole, bare} or fnmatchcase(whole, url)):
                    fault = faults.pop(0)
                    return None if fault.kind == "none" else fault
        return None


def misbehave(reply: Reply, fault: Fault) -> Reply:
    """Return what is answered instead of the right answer; kind and repository stay, for the log."""
    wrong = _wrong(reply, fault)
    wrong.kind, wrong.repository = reply.kind, reply.repository
    return wrong


def _wrong(reply: Reply, fault: Fault) -> Reply:
    if fault.kind == "secondary":
        return json_reply({"message": "You have exceeded a secondary rate limit."}, 403)
    if fault.kind == "500":
        return text_reply("The server stumbled", 500)
    if fault.kind == "html":
        return html_page(fault.status)
    if fault.kind == "redirect":
        return Reply(302, headers={"location": fault.location})
    if fault.kind == "wrong-json":
        return Reply(200, b'{"skills": [', {"content-type": "application/json"})
    assert fault.kind == "missing-fields"
    return json_reply(_without(json.loads(reply.body or b"{}"), fault.fields), reply.status)


def _without(value: Any, fields: tuple[str, ...]) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, dict):
        return {key: _without(inner, fields) for key, inner in value.items() if key not in fields}
    return [_without(inner, fields) for inner in value] if isinstance(value, list) else value
