from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.serve.guard.callers import Callers, is_loopback, usable_token

TOKEN = "a-secret-of-some-length"  # noqa: S105 (of these tests)


def status(callers: Callers, *, free: bool = False, **headers: str | list[str]) -> int | None:
    given = {name: [value] if isinstance(value, str) else value for name, value in headers.items()}
    refused = callers.refuse(given, open_to_all=free)
    return refused and refused[0]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8765", "127.0.0.1", "[::1]:80", "192.168.1.4:1", "skills.lan:1"]
)
def test_this_machines_names_and_addresses_are_answered(host: str) -> None:
    assert status(Callers(["Skills.lan"], ""), host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost:x",
        "[::1",
        "a@localhost",
        "::1",
    ],
)
def test_a_name_that_may_have_been_rebound_is_not(host: str) -> None:
    assert status(Callers([], ""), host=host) == 421
    assert status(Callers([], ""), host=["localhost", host]) == 421


@given(st.text(max_size=30))
def test_any_host_is_judged(host: str) -> None:
    assert status(Callers([], ""), host=host) in {None, 421}


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:2", "file://", ""])
def test_pages_of_another_origin_are_refused(origin: str) -> None:
    assert status(Callers([], ""), host="localhost:1", origin=origin) == 403


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


def test_pages_of_this_server_may_ask() -> None:
    assert status(Callers([], ""), host="localhost:1", origin="http://localhost:1") is None
    assert (
        status(Callers([], ""), host="localhost:1", origin=["http://localhost:1", "http://localhost:1"])
        == 403
    )


def test_with_a_token_only_its_holder_may_ask() -> None:
    callers = Callers([], TOKEN)
    assert status(callers, host="localhost") == 401
    assert status(callers, host="localhost", free=True) is None
    assert status(callers, host="localhost", authorization=f"Bearer {TOKEN}") is None
    assert status(callers, host="localhost", authorization=f"bearer  {TOKEN}") is None
    for wrong in (
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer",
        "Bearer \xff",
    ):
        assert status(callers, host="localhost", authorization=wrong) == 401
    assert status(callers, host="localhost", authorization=[f"Bearer {TOKEN}"] * 2) == 401


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_loopback_is_known(host: str, *, found: bool) -> None:
    assert is_loopback(host) is found


def test_a_token_is_long_and_plain() -> None:
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
