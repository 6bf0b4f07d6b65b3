"""The gate before every answer: which callers are let in, and how much each may ask."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.serve.answers.service import ServeSettings
from flows.serve.catalogue.routes import PATHS
from flows.serve.http_api import error_answer

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::(\d{1,5}))?", re.IGNORECASE | re.ASCII)
_LEAST_TOKEN = 16
BASIC = 'Basic realm="Skillery: any name, and the token as password", charset="UTF-8"'


def is_loopback(host: str) -> bool:
    """Tell whether a server that listens at this host is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def usable_token(token: str) -> bool:
    """Tell whether a token is long enough, and plain enough for a header."""
    return len(token) >= _LEAST_TOKEN and token.isascii() and token.isprintable() and " " not in token


class Callers:
    """Judges by the headers who may ask.

    A page of a stranger can have a browser send requests to a name that then points to this machine (DNS
    rebinding). Such a request has the stranger's name in Host; an address there cannot come of it.

    Args:
        names: The names that this server answers to, beside localhost and addresses.
        token: What `Authorization` must hold, as `Bearer` or as the password of `Basic`; empty: nothing.
    """

    def __init__(self, names: Collection[str], token: str) -> None:
        self._names = {name.lower() for name in (*names, "localhost")}
        self._token = token.encode()

    def refuse(self, headers: Mapping[str, list[str]], *, open_to_all: bool) -> tuple[int, str] | None:
        """Return the status and message for a caller that is refused, None for one that may ask.

        `open_to_all` requests need no token.
        """
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_ours(host):
            return 421, "this Host is not served here: use localhost, an address, or set SKILLERY_SERVE_HOSTS"
        if origins and (
            len(origins) > 1 or origins[0].lower() not in {f"{s}://{host.lower()}" for s in _SCHEMES}
        ):
            return 403, "pages of another origin may not ask: leave out Origin, or use a program"
        if _is_cross_site(headers):
            return 403, "pages of another site may link here, and no more: open the address by itself"
        if self._token and not open_to_all and not self._is_known(headers.get("authorization", [])):
            return 401, "a token is needed: send Authorization: Bearer with SKILLERY_SERVE_TOKEN"
        return None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _is_known(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        held = token.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() == "basic":
            held = _password(held)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(held, self._token)


def _is_cross_site(headers: Mapping[str, list[str]]) -> bool:
    """Tell whether a browser says that another site's page asks, other than by a link that was followed."""
    site, mode, place = (headers.get(f"sec-fetch-{name}", [""])[0] for name in ("site", "mode", "dest"))
    return site not in {"", "same-origin", "none"} and (mode, place) != ("navigate", "document")


def _password(pair: bytes) -> bytes:
    """Return the password of a pair `name:password` in Base64, empty if it is none."""
    try:
        return base64.b64decode(pair, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


_SCHEMES = ("http", "https")


_LONGEST_QUERY = 32_768  # bytes of path and query
_TAKEN = 8  # times what a body may have is read, and thrown away
_OPEN = {"/healthz"}
_CSP = b"content-security-policy"
_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]  # fmt: skip
_SOON = {"retry-after": "1"}
_ROUTES = (
    "/mcp", "/api/search", "/api/page", "/api/skills", "/api/status", "/api/tools", "/docs", "/healthz",
    "/metrics", "/.well-known", "/marketplace.json", *PATHS,
)  # fmt: skip
Count = Callable[[str, int, float], None]


class Refused(Exception):
    """A request is refused before any handler sees it."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


class Gate:
    """An ASGI app around another one, which `callers` may ask within `limits`.

    `count` is told route, status and seconds of each request.
    """

    def __init__(self, app: ASGIApp, callers: Callers, limits: ServeSettings, count: Count) -> None:
        self._app, self._callers, self._limits, self._count = app, callers, limits, count
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or let the app answer it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(send)
        try:
            body = await self._admit(scope, receive)
            await self._within(scope, _replayed(body, receive), answer)
        except Refused as refused:
            await self._say(refused, scope, receive, answer)
        finally:
            seconds = time.perf_counter() - began
            path = scope["path"]
            route = "/" if path == "/" else next((r for r in _ROUTES if path.startswith(r)), "other")
            self._count(route, answer.status, seconds)

    async def _say(self, refused: Refused, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if answer.status:  # half an answer is out: the connection cannot be used again
            raise ConnectionAbortedError(f"an answer was cut off: {refused.message}") from refused
        headers = {**(refused.headers or {}), "connection": "close"}
        await error_answer(refused.status, refused.message, headers)(scope, receive, answer)

    async def _admit(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request that may be answered; raise `Refused` for another one."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may believe the one and we the other, and the rest of the body be another's request.
            raise Refused(400, "Content-Length and Transfer-Encoding exclude each other: send one of them")
        refused = self._callers.refuse(headers, open_to_all=scope["path"] in _OPEN)
        if refused is not None:
            # On `Basic` a browser asks its user, and sends what it is told with each request to this server.
            scheme = BASIC if "text/html" in headers.get("accept", [""])[0] else "Bearer"
            raise Refused(*refused, {"www-authenticate": scheme} if refused[0] == 401 else None)
        if len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_QUERY:
            msg = f"the address is longer than {_LONGEST_QUERY:,} bytes: ask less, or POST to /api/tools"
            raise Refused(414, msg)
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                return await self._read(headers, receive)
        except TimeoutError as late:
            raise Refused(408, "the request did not arrive in time: send it again, whole") from late

    async def _read(self, headers: dict[str, list[str]], receive: Receive) -> bytes:
        most, size, body = self._limits.body_bytes, 0, bytearray()
        declared = headers.get("content-length", ["0"])[0]
        # A client that still sends when its connection is closed does not get to read why.
        taken = _TAKEN * most
        hopeless = declared.isdecimal() and int(declared[:18]) > taken
        ended = hopeless
        while not ended:
            message = await receive()
            if message["type"] != "http.request":
                raise Refused(400, "the request ended before its body did: send it again, whole")
            size += len(message.get("body", b""))
            if size <= most:
                body += message.get("body", b"")
            ended = size > taken or not message.get("more_body", False)
        if hopeless or size > most:
            raise Refused(413, f"the body is larger than {most:,} bytes: send less at once")
        return bytes(body)

    async def _within(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Let the app answer, in time, if not too many are answered."""
        client = scope["client"][0] if scope.get("client") else ""
        if self._under_way[client] >= self._limits.client_requests:
            raise Refused(429, "too many requests of yours are under way: wait for their answers", _SOON)
        if self._under_way.total() >= self._limits.requests:
            raise Refused(503, "too many requests are under way: ask again in a second", _SOON)
        self._under_way[client] += 1
        try:
            async with asyncio.timeout(self._limits.seconds) as answer.within:
                await self._app(scope, receive, answer)
        except TimeoutError as late:
            msg = f"no answer within {self._limits.seconds:g} s: ask for less, or again later"
            raise Refused(503, msg, _SOON) from late
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]


class _Answer:
    """Sends an answer on, with the headers that every one has; knows its status once it has begun."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0
        # In which it must begin; its connection bounds the time in which a client must take it.
        self.within: asyncio.Timeout | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.within is not None and not self.within.expired():
                self.within.reschedule(None)
            given = list(message.get("headers", ()))
            # A page of the catalogue names what it loads; whatever does not, loads nothing.
            own = any(name == _CSP for name, _ in given)
            message = {**message, "headers": [*given, *_SAFE, *(() if own else [(_CSP, _POLICY)])]}
        await self._send(message)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, then whatever comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
