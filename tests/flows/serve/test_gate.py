from __future__ import annotations

import asyncio
import base64
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.serve.answers.service import ServeSettings
from flows.serve.gate import Callers, Gate, is_loopback, usable_token
from tests.support.hostile import besiege
from tests.support.roots.skill_root import SkillRoot
from tests.support.serving import Here, Serving, ask_http, modern_call, serving

TOKEN = "a-secret-of-some-length"  # noqa: S105 (of these tests)


def status(callers: Callers, *, free: bool = False, **headers: str | list[str]) -> int | None:
    given = {name: [value] if isinstance(value, str) else value for name, value in headers.items()}
    refused = callers.refuse(given, open_to_all=free)
    return refused and refused[0]


OWN = ("localhost", "LOCALHOST:8765", "127.0.0.1", "[::1]:80", "192.168.1.4:1", "skills.lan:1")
REBOUND = (
    "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:x", "[::1",
    "a@localhost", "::1",
)  # fmt: skip


def test_this_machines_names_and_addresses_are_answered_and_one_that_may_have_been_rebound_is_not() -> None:
    callers = Callers(["Skills.lan"], "")
    assert [status(callers, host=host) for host in OWN] == [None] * len(OWN)
    assert [status(callers, host=host) for host in REBOUND] == [421] * len(REBOUND)
    assert {status(callers, host=["localhost", host]) for host in REBOUND} == {421}


@given(st.text(max_size=30))
def test_any_host_is_judged(host: str) -> None:
    assert status(Callers([], ""), host=host) in {None, 421}


OTHERS = ("http://evil.example", "null", "http://localhost:2", "file://", "")
TWICE = ["http://localhost:1"] * 2


def test_pages_of_this_server_may_ask_and_those_of_another_origin_are_refused() -> None:
    callers = Callers([], "")
    assert status(callers, host="localhost:1", origin="http://localhost:1") is None
    assert {status(callers, host="localhost:1", origin=origin) for origin in (*OTHERS, TWICE)} == {403}


@pytest.mark.parametrize(
    ("site", "mode", "dest", "found"),
    [
        ("cross-site", "no-cors", "image", 403), ("same-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403), ("cross-site", "navigate", "document", None),
        ("none", "navigate", "document", None), ("same-origin", "cors", "empty", None),
    ],
)  # fmt: skip
def test_a_page_of_another_site_may_be_followed_from_and_load_nothing(
    site: str, mode: str, dest: str, found: int | None
) -> None:
    named = {"sec-fetch-site": [site], "sec-fetch-mode": [mode], "sec-fetch-dest": [dest]}
    refused = Callers([], "").refuse({"host": ["localhost"], **named}, open_to_all=False)
    assert (refused and refused[0]) == found


def test_with_a_token_only_its_holder_may_ask() -> None:
    callers = Callers([], TOKEN)
    assert status(callers, host="localhost") == 401
    assert status(callers, host="localhost", free=True) is None
    assert status(callers, host="localhost", authorization=f"Bearer {TOKEN}") is None
    assert status(callers, host="localhost", authorization=f"bearer  {TOKEN}") is None
    for wrong in (
        TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", "Bearer \xff"
    ):  # fmt: skip
        assert status(callers, host="localhost", authorization=wrong) == 401
    assert status(callers, host="localhost", authorization=[f"Bearer {TOKEN}"] * 2) == 401


def test_loopback_is_known_and_a_token_is_long_and_plain() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("10.0.0.1", "::", "example.org")))
    assert usable_token(TOKEN)
    assert not any(map(usable_token, ("", "short", "a secret with spaces in it", "é" * 20, "a" * 20 + "\n")))


@pytest.mark.parametrize(
    ("pair", "found"),
    [(f"me:{TOKEN}", None), (f":{TOKEN}", None), (TOKEN, 401), (f"{TOKEN}:me", 401), ("me:", 401)],
)
def test_a_browser_gives_the_token_as_a_password(pair: str, found: int | None) -> None:
    callers, sent = Callers([], TOKEN), base64.b64encode(pair.encode()).decode()
    assert status(callers, host="localhost", authorization=f"Basic {sent}") == found
    assert status(callers, host="localhost", authorization="Basic no-base64!") == 401
    assert status(callers, host="localhost", authorization=f"Digest {TOKEN}") == 401


SEARCH = "/api/search?q=look+after+a+hive"


def raw(server: Serving | Here, content: bytes, *, seconds: float = 10) -> bytes:
    """Send bytes, and return what comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(content)
        found = b""
        while part := connection.recv(65_536):
            found += part
        return found


def test_every_answer_has_the_headers_that_keep_browsers_safe(server: Here) -> None:
    others = ask_http(server, "/nothing"), ask_http(server, SEARCH, host="evil.example")
    for answer in (ask_http(server, "/docs"), *others):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not {"set-cookie", "server", "access-control-allow-origin"} & answer.headers.keys()


def test_a_rebound_name_and_a_strange_origin_are_refused(server: Here) -> None:
    headers, body = modern_call(1, "search_skills", {"task": "hive"})
    for target, content in ((SEARCH, None), ("/mcp", body), ("/healthz", None)):
        assert ask_http(server, target, content, **headers, host="evil.example").status == 421
        assert ask_http(server, target, content, **headers, origin="http://evil.example").status == 403
    assert ask_http(server, "/mcp", body, **headers).status == 200


def test_a_body_that_is_too_large_is_refused_with_the_limit(limited: Serving) -> None:
    tool = "/api/tools/search_skills"
    assert ask_http(limited, tool, {"task": "hive"}).status == 200
    refused = ask_http(limited, tool, {"task": "h" * 200_000})
    assert (refused.status, "100,000 bytes" in refused.json()["error"]) == (413, True)
    chunk = b"%x\r\n" % 400_000 + b"x" * 400_000 + b"\r\n"
    head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    assert raw(limited, head + chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    told = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n"
    assert raw(limited, told).startswith(b"HTTP/1.1 413 ")


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(server: Here) -> None:
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n"
    said = raw(server, head + smuggled)
    assert (said[:13], said.count(b"HTTP/1.1"), b"connection: close" in said) == (b"HTTP/1.1 400 ", 1, True)


def test_half_a_request_is_not_waited_for(limited: Serving) -> None:
    for half in (b"", b"GET /api", b"GET / HTTP/1.1\r\nhost: localhost\r\n"):
        assert raw(limited, half) == b""
    body = raw(limited, b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    assert body.startswith(b"HTTP/1.1 408 ")
    assert trickle(limited, seconds=30) < 25
    assert ask_http(limited, "/healthz").status == 200


def trickle(server: Serving, *, seconds: float) -> float:
    """Send a byte every tenth of a second; return after how many seconds the connection was cut."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow, suppress(OSError):
        while time.monotonic() - began < seconds:
            slow.sendall(b"G")
            time.sleep(0.1)
    return time.monotonic() - began


def test_more_connections_than_allowed_are_turned_away(limited: Serving) -> None:
    held = [socket.create_connection(("127.0.0.1", limited.port)) for _ in range(40)]
    time.sleep(0.2)
    assert raw(limited, b"").startswith(b"HTTP/1.1 429 ")
    for connection in held:
        connection.close()
    time.sleep(0.2)
    assert ask_http(limited, "/healthz").status == 200


def gated(app: ASGIApp, **limits: float) -> Callable[[], Awaitable[list[Message]]]:
    """Return what asks an app behind a gate once, by a client that takes its answer slowly."""
    gate = Gate(app, Callers([], ""), ServeSettings.model_validate(limits), lambda *_: None)
    scope = {
        "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }  # fmt: skip

    async def ask() -> list[Message]:
        sent, asked = list[Message](), iter([{"type": "http.request"}])

        async def slowly(message: Message) -> None:
            await asyncio.sleep(0.15)
            sent.append(message)

        async def receive() -> Message:
            for message in asked:
                return message
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        await gate(scope, receive, slowly)
        return sent

    return ask


async def late(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0.5)
    await PlainTextResponse("late")(scope, receive, send)


@pytest.mark.parametrize(
    ("limits", "status", "said"),
    [
        ({"client_requests": 2}, 429, b"requests of yours are under way"),
        ({"requests": 2}, 503, b"too many requests are under way"),
    ],
)
def test_more_requests_at_once_than_allowed_are_told_to_wait(
    limits: dict[str, float], status: int, said: bytes
) -> None:
    async def many() -> list[list[Message]]:
        ask = gated(late, **limits)
        at_once = await asyncio.gather(*(ask() for _ in range(3)))
        return [*at_once, await ask()]

    answers = asyncio.run(many())
    assert [answer[0]["status"] for answer in answers] == [200, 200, status, 200]
    assert (b"retry-after", b"1") in answers[2][0]["headers"]
    assert said in answers[2][1]["body"]


def test_an_answer_that_takes_too_long_is_given_up_but_one_that_began_in_time_may_be_taken_slowly() -> None:
    head, body = asyncio.run(gated(late, seconds=0.05)())
    assert (head["status"], (b"retry-after", b"1") in head["headers"]) == (503, True)
    assert b"no answer within" in body["body"]

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"piece"

    sent = asyncio.run(gated(StreamingResponse(pieces()), seconds=0.3)())
    assert [message.get("body") for message in sent] == [None, b"piece", b"piece", b"piece", b""]


def test_beyond_this_machine_its_own_name_is_answered_and_without_a_token_nothing_but_health_is_told(
    storied: SkillRoot,
) -> None:
    names = {"SKILLERY_SERVE_TOKEN": TOKEN, "SKILLERY_SERVE_HOSTS": '["skills.example.org"]'}
    with serving(storied.root.uri, "--host", "0.0.0.0", **names) as server:  # noqa: S104
        own = f"{socket.gethostname()}:1"
        for host, status in ((own, 200), ("skills.example.org", 200), ("evil.example", 421)):
            assert ask_http(server, SEARCH, authorization=f"Bearer {TOKEN}", host=host).status == status
        headers, body = modern_call(1, "search_skills", {"task": "hive"})
        for target, content in ((SEARCH, None), ("/docs", None), ("/metrics", None), ("/mcp", body)):
            refused = ask_http(server, target, content, **headers)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert ask_http(server, target, content, **headers, authorization=f"Bearer {TOKEN}").status == 200
        to_a_browser = ask_http(server, "/", accept="text/html,*/*")
        assert to_a_browser.headers["www-authenticate"].startswith("Basic realm=")
        assert ask_http(server, "/healthz").status == 200


def test_hostile_requests_break_nothing(limited: Serving, storied: SkillRoot) -> None:
    canary = "canary-of-a-file-outside-the-root"
    (storied.root.folder.parent / "outside.txt").write_text(canary, "utf-8")
    siege = asyncio.run(besiege(limited, 40, seed=7, canary=canary))
    assert ask_http(limited, SEARCH).status == 200
    assert limited.process.poll() is None
    assert siege.wrong == []
    assert siege.statuses.total() == 40
    assert not any("Traceback" in line for line in limited.said), limited.said
