from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.hostile import besiege
from tests.support.roots.skill_root import SkillRoot
from tests.support.serving import Answer, Serving, ask_http, modern_call, serving

TOKEN = "a-secret-of-some-length"  # noqa: S105 (of these tests)
SEARCH = "/api/search?q=look+after+a+hive"


@pytest.fixture(scope="module")
def limited(storied: SkillRoot) -> Iterator[Serving]:
    """A server with limits that a test reaches: of a body's bytes, a client's connections, and waiting."""
    limits = {"BODY_BYTES": "1000", "CLIENT_CONNECTIONS": "3", "READ_SECONDS": "0.5"}
    with serving(storied.root.uri, **{f"SKILLERY_SERVE_{name}": v for name, v in limits.items()}) as started:
        yield started


def raw(server: Serving, content: bytes, *, seconds: float = 10) -> bytes:
    """Send bytes, and return what comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(content)
        found = b""
        while part := connection.recv(65_536):
            found += part
        return found


def test_every_answer_has_the_headers_that_keep_browsers_safe(server: Serving) -> None:
    for answer in (
        ask_http(server, "/docs"),
        ask_http(server, "/nothing"),
        ask_http(server, SEARCH, host="evil.example"),
    ):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not {"set-cookie", "server", "access-control-allow-origin"} & answer.headers.keys()


def test_a_rebound_name_and_a_strange_origin_are_refused(server: Serving) -> None:
    headers, body = modern_call(1, "search_skills", {"task": "hive"})
    for target, content in ((SEARCH, None), ("/mcp", body), ("/healthz", None)):
        assert ask_http(server, target, content, **headers, host="evil.example").status == 421
        assert ask_http(server, target, content, **headers, origin="http://evil.example").status == 403
    assert ask_http(server, "/mcp", body, **headers).status == 200


def test_a_body_that_is_too_large_is_refused_with_the_limit(limited: Serving) -> None:
    tool = "/api/tools/search_skills"
    assert ask_http(limited, tool, {"task": "hive"}).status == 200
    refused = ask_http(limited, tool, {"task": "h" * 2000})
    assert (refused.status, "1,000 bytes" in refused.json()["error"]) == (413, True)
    chunk = b"fa0\r\n" + b"x" * 4000 + b"\r\n"
    head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    assert raw(limited, head + chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    assert raw(
        limited, b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n"
    ).startswith(b"HTTP/1.1 413 ")


def test_half_a_request_is_not_waited_for(limited: Serving) -> None:
    for half in (b"", b"GET /api", b"GET / HTTP/1.1\r\nhost: localhost\r\n"):
        began = time.monotonic()
        assert raw(limited, half) == b""
        assert time.monotonic() - began < 5
    body = raw(limited, b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    assert body.startswith(b"HTTP/1.1 408 ")
    assert trickle(limited, seconds=6) < 5
    assert ask_http(limited, "/healthz").status == 200


def trickle(server: Serving, *, seconds: float) -> float:
    """Send a byte every tenth of a second; return after how many seconds the connection was cut."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow, suppress(OSError):
        while time.monotonic() - began < seconds:
            slow.sendall(b"G")
            time.sleep(0.1)
    return time.monotonic() - began


def many(server: Serving, count: int) -> list[Answer]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda n: ask_http(server, f"{SEARCH}+{n}"), range(count)))


@pytest.mark.parametrize(
    ("limit", "status"), [("SKILLERY_SERVE_CLIENT_REQUESTS", 429), ("SKILLERY_SERVE_REQUESTS", 503)]
)
def test_more_requests_at_once_than_allowed_are_told_to_wait(
    storied: SkillRoot, limit: str, status: int
) -> None:
    with serving(storied.root.uri, **{limit: "2"}) as server:
        answers = many(server, 24)
        statuses = Counter(answer.status for answer in answers)
        assert set(statuses) == {200, status}
        refused = next(answer for answer in answers if answer.status == status)
        assert refused.headers["retry-after"] == "1"
        assert "under way" in refused.json()["error"]
        assert ask_http(server, SEARCH).status == 200


def test_more_connections_than_allowed_are_turned_away(limited: Serving) -> None:
    held = [socket.create_connection(("127.0.0.1", limited.port)) for _ in range(3)]
    time.sleep(0.2)
    assert raw(limited, b"").startswith(b"HTTP/1.1 429 ")
    for connection in held:
        connection.close()
    time.sleep(0.2)
    assert ask_http(limited, "/healthz").status == 200


def test_an_answer_that_takes_too_long_is_given_up(storied: SkillRoot) -> None:
    with serving(storied.root.uri, SKILLERY_SERVE_SECONDS="0.0001") as server:
        answer = ask_http(server, SEARCH)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "no answer within" in answer.json()["error"]


def test_with_a_token_nothing_but_health_is_told_without_it(storied: SkillRoot) -> None:
    with serving(storied.root.uri, "--host", "127.0.0.1", SKILLERY_SERVE_TOKEN=TOKEN) as server:
        headers, body = modern_call(1, "search_skills", {"task": "hive"})
        for target, content in ((SEARCH, None), ("/docs", None), ("/metrics", None), ("/mcp", body)):
            refused = ask_http(server, target, content, **headers)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert ask_http(server, target, content, **headers, authorization=f"Bearer {TOKEN}").status == 200
        to_a_browser = ask_http(server, "/", accept="text/html,*/*")
        assert to_a_browser.headers["www-authenticate"].startswith("Basic realm=")
        assert ask_http(server, "/healthz").status == 200


def test_hostile_requests_break_nothing_and_delay_nobody(storied: SkillRoot) -> None:
    canary = "canary-of-a-file-outside-the-root"
    (storied.root.folder.parent / "outside.txt").write_text(canary, "utf-8")
    with serving(storied.root.uri, SKILLERY_SERVE_READ_SECONDS="0.5") as server:
        siege = asyncio.run(besiege(server, 200, seed=7, canary=canary))
        assert ask_http(server, SEARCH).status == 200
        assert server.process.poll() is None
    assert siege.wrong == []
    assert siege.statuses.total() == 200
    assert siege.delay() < 100, (statistics.median(siege.alone), statistics.median(siege.beside))
    assert not any("Traceback" in line for line in server.said), server.said
