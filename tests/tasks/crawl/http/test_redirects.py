from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from storage.root import Root
from tasks.crawl.http.client import next_hop
from tasks.crawl.http.responses import HttpTerminal, host_of
from tasks.crawl.http.secrets import Secret
from tests.support.crawl.loopback_host import Host, Reply, impatient, in_loop, says

TOKEN = Secret("t0ken-x")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


def to(location: str, status: int = 302) -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": location}, body=b"moved")

    return reply


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_same_host_is_followed_with_all_that_was_asked(root: Root, status: int) -> None:
    @in_loop
    async def asked() -> None:
        replies = {"/a": to("b/c?d=1", status), "/b/c": says('"moved"', ETag="e")}
        async with Host(replies) as host, host.http(root) as http:
            answer = await http.get(f"{host.url}/a", token=TOKEN, headers={"Accept": "x/y"}, etag='"0"')
            assert (answer.json(), answer.url) == ("moved", f"{host.url}/b/c")
            assert host.requests[1].query_string == "d=1"
            for request in host.requests:
                asked = [request.headers[n] for n in ("Authorization", "Accept", "If-None-Match")]
                assert asked == ["Bearer t0ken-x", "x/y", '"0"']
            assert http.requests == 2

    asked()


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
    "location", ["", "file:///etc/passwd", "ftp://h.example/a", "http://[", "http://u:pw@h.example/"]
)
def test_a_redirect_to_no_place_is_refused(location: str) -> None:
    with pytest.raises(HttpTerminal) as caught:
        next_hop(URL("http://h.example/a"), location, {"h.example"})
    assert caught.value.reason == "redirect"
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("location", ["http://h.example/a", "http://other.example/a"])
def test_https_is_never_left(location: str) -> None:
    with pytest.raises(HttpTerminal, match="https to http"):
        next_hop(URL("https://h.example/a"), location, {"h.example", "other.example"})


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
