"""Hostile requests by a bounded fuzzer with a seed, and how another client fares beside them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

from tests.support.serving import Serving, modern_call

_AT_ONCE = 12
_PATIENCE = 4.0  # seconds in which an answer must come, or the connection is left
_NAMES = (
    "/api/search",
    "/api/page",
    "/api/skills/x",
    "/api/status",
    "/mcp",
    "/docs",
    "/healthz",
    "/metrics",
    "/",
    "/skill",
    "/file",
    "/graph",
    "/revisions",
    "/sources",
    "/report",
    "/static/x",
)
_CLIMBS = (
    "../../outside.txt", "..%2f..%2foutside.txt", "%2e%2e/%2e%2e/outside.txt", "....//outside.txt",
    "/etc/passwd", "..\\..\\outside.txt", "%00/etc/passwd", "..%c0%af..%c0%afetc/passwd",
    "file:///etc/passwd", "./state/served.json",
)  # fmt: skip
_TEXTS = (
    "\ud800", "\x00", "a" * 30_000, "'; DROP TABLE skills; --", "%s%n{}", "\u202e\ufeff", "🦊" * 500, "-1",
    "",
)  # fmt: skip
_FIELDS = (
    "q", "k", "doc_id", "budget", "method", "kind", "licence", "source", "explain", "file", "form", "percent",
    "page", "path", "a", "risk",
)  # fmt: skip
_MORE = ("", "&q=a", "&q=bees&doc_id=bees", "&k=99999999999999999999", "&budget=nan", "&budget=1e999")
_HOSTS = ("localhost", "evil.example", "127.0.0.1.evil.example", "[::1", "", "localhost:99999", "a b")
_METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "X" * 50)
_CALLED = ("tools/call", "skills/list", "skills/get", "resources/read", "resources/directory/read")
_TOOLS = (
    "search_skills", "page_skill", "show_skill", "read_skill_file", "compose_plan", "suggest_steps",
)  # fmt: skip
_POSTED = ("/mcp", *(f"/api/tools/{name}" for name in _TOOLS))
_GIVEN = ("task", "doc_id", "path", "request", "budget", "offset", "filters", "state", "domain")


@dataclass(slots=True)
class Siege:
    """What came of hostile requests: statuses, what must not happen, a good client's milliseconds."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)


def hostile_request(rng: random.Random) -> tuple[bytes, bool]:
    """Return the bytes of one request, and whether its end is left out."""
    make: Callable[[random.Random], bytes] = rng.choice(_KINDS)
    content = make(rng)
    if rng.random() < 0.1:
        return content[: rng.randrange(1, len(content) + 1)], True
    return content, False


def _request(method: str, target: str, body: bytes = b"", *headers: str, host: str = "localhost") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", "connection: close", *headers]
    if body and not any(h.lower().startswith(("content-length", "transfer-encoding")) for h in headers):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + body


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 3000))


def _target(rng: random.Random) -> bytes:
    climb, one, other = rng.choice(_CLIMBS), rng.randrange(256), rng.randrange(256)
    target = rng.choice((
        f"/{climb}", f"/api/skills/{climb}", f"/api/skills/bees?file={climb}", f"/docs/{climb}", "*", "",
        f"/api/skills/bees?form=raw&file={climb}", f"/{'x' * rng.randrange(1, 70_000)}", f"//{climb}",
        f"/api/skills/{'%41' * rng.randrange(1, 2000)}", f"/%{one:02x}%{other:02x}",
        f"http://evil.example/{climb}",
    ))  # fmt: skip
    return _request(rng.choice(_METHODS), target)


def _query(rng: random.Random) -> bytes:
    text = quote(rng.choice(_TEXTS).encode("utf-8", "surrogatepass"))
    return _request("GET", f"{rng.choice(_NAMES)}?{rng.choice(_FIELDS)}={text}{rng.choice(_MORE)}")


def _headers(rng: random.Random) -> bytes:
    header = rng.choice((
        "origin: http://evil.example", "origin: null", "host: evil.example", "authorization: Bearer \xff",
        f"x: {'y' * rng.randrange(1, 90_000)}", "if-none-match: " + '"' * 900, "expect: 100-continue",
        "mcp-protocol-version: 9999-01-01", "upgrade: websocket\r\nconnection: upgrade", "cookie: a=b",
        "x-forwarded-host: evil.example", "transfer-encoding: chunked, chunked", "content-length: -5",
        "\r\n".join(f"h{n}: {n}" for n in range(rng.randrange(1, 400))), " folded: yes", "te: trailers",
        "content-type: multipart/form-data",
    ))  # fmt: skip
    return _request("GET", f"{rng.choice(_NAMES)}?q=bees&doc_id=bees", b"", header, host=rng.choice(_HOSTS))


def _bodies(rng: random.Random) -> bytes:
    body = rng.choice((
        rng.randbytes(2000), b"[" * 50_000, b'{"a":' * 9000, b"9" * 60_000, b'"\\ud800"', b"null", b"[]",
        b'{"task": "\\ud800\\udc00\\ud800", "k": 1e400}', b'{"task": "bees", "k": NaN}', b"x" * 300_000,
        json.dumps({"task": "bees", "filters": {"kind": ["x" * 9000]}}).encode(), b"{}",
        b"\xff\xfe{\x00}\x00",
        json.dumps({"doc_id": rng.choice(_CLIMBS), "path": rng.choice(_CLIMBS)}).encode(),
    ))  # fmt: skip
    length = f"content-length: {rng.choice((0, 10**9, 10**30))}"
    sized = rng.choice(((), (), (length,), ("transfer-encoding: chunked",)))
    return _request("POST", rng.choice(_POSTED), body, "content-type: application/json", *sized)


def _calls(rng: random.Random) -> bytes:
    values: tuple[object, ...] = (*_TEXTS[1:], *_CLIMBS, -1, 10**400, None, [], {"a": 1}, True)
    given = {rng.choice(_GIVEN): rng.choice(values) for _ in range(3)}
    headers, body = modern_call(1, rng.choice((*_TOOLS, "rm")), given)
    method = rng.choice(_CALLED)
    if method != "tools/call":
        uri = rng.choice(("skill://", "skill://local+market+bees/bees/")) + rng.choice(_CLIMBS)
        body["method"], headers["mcp-method"], headers["mcp-name"] = method, method, uri
        meta = body["params"]["_meta"]
        body["params"] = {"uri": uri, "cursor": rng.choice(("", "****", "AAAA")), "_meta": meta}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return _request("POST", "/mcp", json.dumps(body).encode(), *lines)


_KINDS = (_noise, _target, _query, _headers, _bodies, _calls)


async def besiege(server: Serving, count: int, *, seed: int, canary: str, alone: int = 0) -> Siege:
    """Send hostile requests, and good ones before, so many, and meanwhile; no answer may hold the canary."""
    siege, rng = Siege(), random.Random(seed)  # noqa: S311 (nothing is kept secret by it)
    for _ in range(alone):
        siege.alone.append(await _good(server, siege))
        await asyncio.sleep(0.02)
    # Half of these connections stay open to the end.
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
    for _, writer in held[10:]:
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
    gate = asyncio.Semaphore(_AT_ONCE)
    requests = [hostile_request(rng) for _ in range(count)]
    sending = asyncio.gather(
        *(_send(server, siege, gate, content, canary, cut=cut) for content, cut in requests)
    )
    while not sending.done():
        siege.beside.append(await _good(server, siege))
        await asyncio.sleep(0.02)
    await sending
    for _, writer in held:
        writer.close()
    return siege


async def _send(
    server: Serving, siege: Siege, gate: asyncio.Semaphore, content: bytes, canary: str, *, cut: bool
) -> None:
    async with gate:
        answer = b""
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_PATIENCE if not cut else 0.1):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                try:
                    writer.write(content)
                    answer = await reader.read(-1)
                finally:
                    writer.close()
    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "none"
    siege.statuses[status] += 1
    if status == "500" or canary.encode() in answer or b"root:x:0" in answer:
        siege.wrong.append(f"{status} to {content[:300]!r}: {answer[-300:]!r}")


async def _good(server: Serving, siege: Siege) -> float:
    """Ask as a good client does; return how many milliseconds it took."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(_request("GET", "/api/search?q=look+after+a+hive"))
    answer = await reader.read(-1)
    writer.close()
    if not answer.startswith(b"HTTP/1.1 200 "):
        siege.wrong.append(f"a good client was answered {answer[:300]!r}")
    return 1000 * (time.perf_counter() - began)
