"""What a service is asked and what it answers, before any of it becomes HTTP."""

from __future__ import annotations

import hashlib
import json
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
    chunked: bool = False


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
