"""Requests that are sent again, and redirects that are followed or not."""

from __future__ import annotations

import asyncio
import gzip
import random
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from storage.errors import WrongInput
from storage.root import Root
from tasks.crawl.http.client import next_hop
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, QuotaExhausted, host_of
from tasks.crawl.http.settings import Secret
from tasks.models.retry import RetryPolicy
from tests.support.crawl.loopback_host import (
    NOON,
    Host,
    Reply,
    cuts,
    hangs_up,
    impatient,
    in_loop,
    says,
)

NOISE = random.Random(3).randbytes(300_000)  # noqa: S311
FINE = says('"fine"')
SECONDARY = '{"message": "You have exceeded a secondary rate limit"}'
TOKEN = Secret("t0ken-x")


def patient(**policy: float) -> dict[str, Any]:
    return {"delay": 0, "retry": RetryPolicy(**policy)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "reason", "status"),
    [
        *[(says("", status), "server", status) for status in (425, 500, 502, 503, 504)],
        (says("", 408), "timeout", 408), (says("", 429), "rate-limited", 429),
        (says(SECONDARY, 403), "rate-limited", 403), (says("", 403, Retry_After="0"), "rate-limited", 403),
        (says("<html>busy</html>", 503, Content_Type="text/html"), "server", 503),
        (cuts, "connection", None), (hangs_up, "connection", None),
        (says(b"\x1f\x8b no gzip", Content_Encoding="gzip"), "connection", None),
        (says(gzip.compress(NOISE)[:-9], Content_Encoding="gzip"), "connection", None),
        (says(gzip.compress(NOISE)[:5], Content_Encoding="gzip"), "connection", None),
    ],
)  # fmt: skip
@in_loop
async def test_passing_faults_are_tried_again_until_the_tries_are_used_up(
    root: Root, fault: Reply, reason: str, status: int | None
) -> None:
    async with Host({"/a": [fault, fault, FINE], "/b": fault}) as host, host.http(root) as http:
        assert (await http.get(f"{host.url}/a")).json() == "fine"
        assert http.requests == len(host.requests) == 3
        with pytest.raises(HttpTransient) as caught:
            await http.get(f"{host.url}/b")
        assert (caught.value.reason, caught.value.status) == (reason, status)
        assert (len(host.requests), host.time.slept) == (6, 0)


@in_loop
async def test_waits_double_up_to_the_longest_and_are_drawn(root: Root) -> None:
    async with Host({"/a": says("", 500)}) as host, host.http(root, patient(tries=6)) as http:
        with pytest.raises(HttpTransient):
            await http.get(f"{host.url}/a")
        assert host.time.sleeps == [1.5, 3.0, 6.0, 10.0, 10.0]
        with pytest.raises(RuntimeError, match="async with"):
            await host.http(root).get(f"{host.url}/a")
        host.say("/b", says("", 501))  # which no other try mends
        with pytest.raises(HttpTransient, match="501"):
            await http.get(f"{host.url}/b")
        assert host.paths().count("/b") == 1
    assert [RetryPolicy().backoff(1, draw) for draw in (0.0, 0.999)] == pytest.approx([1.0, 1.999])
    for wrong in ({"tries": 0}, {"wait_min": -1.0}, {"wait_max": -1.0}):
        with pytest.raises(WrongInput):
            RetryPolicy(**wrong)  # type: ignore[arg-type]


DATE = format_datetime(NOON + timedelta(seconds=7), usegmt=True)


@pytest.mark.parametrize(
    ("status", "told", "waited"),
    [
        *[(status, told, 7.0) for status in (429, 403, 503) for told in ("7", DATE)],
        *[(429, nonsense, 1.5) for nonsense in ("-5", "soon", "", "Sun, 99 Foo 2026")],
    ],
)
@in_loop
async def test_the_wait_that_a_server_asks_for_is_waited_and_nonsense_counts_as_silence(
    root: Root, status: int, told: str, waited: float
) -> None:
    replies = {"/a": [says("", status, Retry_After=told), FINE]}
    async with Host(replies) as host, host.http(root, patient()) as http:
        await http.get(f"{host.url}/a")
        assert host.time.slept == waited


@in_loop
async def test_the_whole_host_waits_as_told_and_others_do_not(root: Root) -> None:
    told = says("", 503, Retry_After="30")
    async with (
        Host({"/a": [told, FINE], "/b": FINE}) as host,
        Host({"/c": FINE}, host.time) as other,
        host.http(root, patient(tries=1)) as http,
    ):
        with pytest.raises(HttpTransient):
            await http.get(f"{host.url}/a")
        await http.get(f"{other.url}/c")
        assert host.time.slept == 0
        await http.get(f"{host.url}/b")
        assert host.time.slept == 30


@in_loop
async def test_a_long_wait_is_remembered_and_nothing_is_asked_until_it_is_over(root: Root) -> None:
    told = says("", 429, Retry_After="3600")
    async with Host({"/a": [told, FINE], "/b": FINE}) as host:
        async with host.http(root) as http:
            with pytest.raises(HttpTransient) as caught:
                await http.get(f"{host.url}/a")
            assert (caught.value.reason, caught.value.wait) == ("rate-limited", 3600)
        async with host.http(root) as restarted:
            host.time.now += timedelta(seconds=3539)
            with pytest.raises(HttpTransient, match="no requests before 2026-03-01 13:00:00 UTC") as caught:
                await restarted.get(f"{host.url}/b")
            assert (caught.value.reason, host.time.slept) == ("rate-limited", 0)
            assert not isinstance(caught.value, QuotaExhausted)
            assert host.paths() == ["/a"]
            host.time.now += timedelta(seconds=1)
            await restarted.get(f"{host.url}/b")
            assert (host.paths(), host.time.slept) == (["/a", "/b"], 60)
            host.say("/c", says("", 429, Retry_After="9" * 30), FINE)
            with pytest.raises(HttpTransient):
                await restarted.get(f"{host.url}/c")
            host.time.now += timedelta(days=1)  # a wait of years is not believed
            await restarted.get(f"{host.url}/c")


def drips(status: int) -> Reply:
    """Return a reply that sends a byte now and then."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Length": "100000"})
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.05)

    return reply


@in_loop
async def test_a_dripping_body_ends_at_the_time_limit_and_a_refusal_keeps_its_meaning(root: Root) -> None:
    limits = impatient(timeout=0.3, retry=RetryPolicy(tries=1))
    async with Host({"/a": drips(200), "/b": drips(404)}) as host, host.http(root, limits) as http:
        with pytest.raises(HttpTransient, match=r"0\.3 s") as slow:
            await http.get(f"{host.url}/a")
        assert (slow.value.reason, slow.value.status) == ("timeout", None)
        with pytest.raises(HttpTerminal) as refused:
            await http.get(f"{host.url}/b")
        assert refused.value.reason == "missing"


def to(location: str, status: int = 302) -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": location}, body=b"moved")

    return reply


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@in_loop
async def test_a_redirect_on_the_same_host_is_followed_with_all_headers(root: Root, status: int) -> None:
    replies = {"/a": to("b/c?d=1", status), "/b/c": says('"moved"', ETag="e")}
    async with Host(replies) as host, host.http(root) as http:
        answer = await http.get(f"{host.url}/a", token=TOKEN, headers={"Accept": "x/y"}, etag='"0"')
        assert (answer.json(), answer.url) == ("moved", f"{host.url}/b/c")
        assert host.requests[1].query_string == "d=1"
        for request in host.requests:
            asked = [request.headers[n] for n in ("Authorization", "Accept", "If-None-Match")]
            assert asked == ["Bearer t0ken-x", "x/y", '"0"']
        assert http.requests == 2


@in_loop
async def test_an_allowed_host_is_told_no_secret(root: Root, tmp_path: Path) -> None:
    async with Host({"/archive": says(b"zip")}) as other:
        there = f"{other.url}/archive?signature=1"
        async with Host({"/a": to(there)}) as host:
            async with host.http(root, impatient(redirect_hosts=frozenset({other.name}))) as http:
                headers = {"Accept": "x/y", "X-Api-Key": "k"}
                await http.get(f"{host.url}/a", token=TOKEN, headers=headers, etag='"0"')
                await http.download(f"{host.url}/a", tmp_path / "a", token=TOKEN)
            assert (tmp_path / "a").read_bytes() == b"zip"
            assert {r.headers.get("Authorization") for r in host.requests} == {"Bearer t0ken-x"}
        for request in other.requests:
            assert not {"Authorization", "X-Api-Key", "If-None-Match", "Cookie"} & set(request.headers)
            assert request.query_string == "signature=1"
        assert other.requests[0].headers["Accept"] == "x/y"


@in_loop
async def test_a_way_back_from_another_host_brings_no_credentials_back(root: Root) -> None:
    async with Host({}) as other, Host({"/a": to(f"{other.url}/b"), "/c": says('"here"')}) as host:
        other.say("/b", to("/further"))
        other.say("/further", to(f"{host.url}/c"))
        async with host.http(root, impatient(redirect_hosts=frozenset({other.name, host.name}))) as http:
            assert (await http.get(f"{host.url}/a", token=TOKEN)).json() == "here"
        assert [r.headers.get("Authorization") for r in host.requests] == ["Bearer t0ken-x", None]
        assert [r.headers.get("Authorization") for r in other.requests] == [None, None]


@in_loop
async def test_any_other_host_is_refused_by_name_and_not_asked(root: Root) -> None:
    async with Host({"/b": says()}) as other, Host({"/a": to(f"{other.url}/b?key=s3cret")}) as host:
        http = host.http(root)
        with pytest.raises(HttpTerminal) as caught:
            async with http:
                await http.get(f"{host.url}/a", token=TOKEN)
    assert caught.value.reason == "redirect"
    assert host.name in str(caught.value)
    assert other.name in str(caught.value)
    assert "s3cret" not in f"{caught.value!r} {dict(caught.value.headers)}"
    assert (len(host.requests), other.requests) == (1, [])


@in_loop
async def test_a_circle_is_left_after_five_redirects(root: Root) -> None:
    async with Host({"/a": to("/a")}) as host, host.http(root) as http:
        with pytest.raises(HttpTerminal, match="more than 5 redirects"):
            await http.get(f"{host.url}/a")
        assert len(host.requests) == 6


@pytest.mark.parametrize(
    ("url", "location", "said"),
    [
        *[
            ("http://h.example/a", location, "redirect")
            for location in (
                "",
                "file:///etc/passwd",
                "ftp://h.example/a",
                "http://[",
                "http://u:pw@h.example/",
            )
        ],
        ("https://h.example/a", "http://h.example/a", "https to http"),
        ("https://h.example/a", "http://other.example/a", "https to http"),
    ],
)
def test_a_redirect_to_no_place_or_out_of_https_is_refused(url: str, location: str, said: str) -> None:
    with pytest.raises(HttpTerminal) as caught:
        next_hop(URL(url), location, {"h.example", "other.example"})
    assert caught.value.reason == "redirect"
    assert said in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://API.Example.org/a", "api.example.org"),
        ("https://api.example.org:443/a", "api.example.org"),
        ("http://api.example.org:443/a", "api.example.org:443"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000/a", "[::1]:8000"),
    ],
)
def test_a_host_has_one_name(url: str, host: str) -> None:
    assert host_of(URL(url)) == host
