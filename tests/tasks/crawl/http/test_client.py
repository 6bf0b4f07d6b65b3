"""The client: what it sends and reads, credentials, and addresses that cannot be asked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.errors import SourceError, StorageError, TerminalError, WrongInput
from storage.root import Root
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.http.settings import CrawlSettings, Secret
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import open_source
from tests.support.crawl.loopback_host import Host, Reply, cuts, hangs_up, http_of, in_loop, says

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WRONG = ["https://somebody:secret@127.0.0.1:9/", "https://127.0.0.1:99999999", "https://[", "ftp://127.0.0.1"]


@in_loop
async def test_an_answer_holds_body_headers_and_address(root: Root) -> None:
    async with Host({"/a": says('{"bees": 3}', X_Colour="Amber")}) as host, host.http(root) as http:
        answer = await http.get(f"{host.url}/a", params={"q": "wax & honey"}, headers={"Accept": "a/b"})
        assert (answer.status, answer.url, answer.json()) == (200, f"{host.url}/a", {"bees": 3})
        assert answer.headers["x-colour"] == "Amber"
        (asked,) = host.requests
        assert dict(asked.query) == {"q": "wax & honey"}
        assert asked.headers["Accept"] == "a/b"
        assert asked.headers["User-Agent"].startswith("skillery/")
        assert "Authorization" not in asked.headers
        assert http.requests == 1


@in_loop
async def test_a_known_etag_is_answered_with_304(root: Root) -> None:
    async with Host({"/a": [says("{}", ETag='"1"'), says(b"", 304)]}) as host, host.http(root) as http:
        first = await http.get(f"{host.url}/a")
        second = await http.get(f"{host.url}/a", etag=first.headers["etag"])
        assert (second.status, second.body) == (304, b"")
        assert [r.headers.get("If-None-Match") for r in host.requests] == [None, '"1"']
        with pytest.raises(HttpTerminal, match="HTTP 304") as caught:
            await http.get(f"{host.url}/a")
        assert caught.value.reason == "refused"


PAGE = "<html><body>Prove that you are a person.</body></html>"


@pytest.mark.parametrize(
    ("status", "body", "headers", "reason"),
    [
        (404, "", {}, "missing"),
        (410, "", {}, "missing"),
        (401, '{"error": {"code": "INVALID_API_KEY"}}', {}, "unauthorised"),
        (403, '{"message": "Private apiary"}', {}, "denied"),
        (403, '{"message": "no", "html_url": "https://h.example/o/dmca-tools"}', {}, "denied"),
        (403, '{"message": "blocked", "block": {"reason": "dmca"}}', {}, "withdrawn"),
        (403, "Taken down after a DMCA notice.", {"Retry-After": "5"}, "withdrawn"),
        (451, "", {}, "withdrawn"),
        (403, "<!DOCTYPE html><title>Wait</title>", {"Content-Type": "text/html"}, "html"),
        (400, '{"error": {"code": "MISSING_QUERY"}}', {}, "refused"),
        (204, "", {}, "refused"),
        (300, "", {}, "refused"),
        (200, PAGE, {"Content-Type": "text/html; charset=utf-8"}, "html"),
        (200, "\n<!doctype HTML>\n<p>Hello</p>", {"Content-Type": "application/json"}, "html"),
        (200, '{"skills": [', {"Content-Type": "application/json"}, "not-json"),
        (200, "[" * 100_000, {"Content-Type": "application/json"}, "not-json"),
        (200, "\ud83d", {"Content-Type": "application/json"}, "not-json"),
    ],
)
@in_loop
async def test_what_is_no_answer_is_terminal_told_apart_and_asked_once(
    root: Root, status: int, body: str, headers: dict[str, str], reason: str
) -> None:
    data = body.encode("utf-8", "surrogatepass")
    async with Host({"/a": says(data, status, **headers)}) as host, host.http(root) as http:
        with pytest.raises(HttpTerminal) as caught:
            (await http.get(f"{host.url}/a")).json()
        assert (caught.value.reason, caught.value.status) == (reason, status)
        assert isinstance(caught.value, TerminalError)
        assert caught.value.body == data[:4096]
        assert http.requests == len(host.requests) == 1


@in_loop
async def test_an_error_says_what_the_server_said_on_one_line(root: Root) -> None:
    body = '{"error": {"code": "X", "message": "Hive\\n7 \\u001b[31mis   closed"}}'
    async with Host({"/a": says(body, 400)}) as host, host.http(root) as http:
        with pytest.raises(HttpTerminal) as caught:
            await http.get(f"{host.url}/a?key=s3cret#part")
    assert str(caught.value) == f"{host.url}/a: HTTP 400: Hive 7 [31mis closed"
    assert caught.value.url == f"{host.url}/a"


@in_loop
async def test_a_token_is_sent_and_shown_nowhere_else(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    echo = says(b'{"message": "your token is t0ken-x"}', 500, Set_Cookie="session=t0ken-x")
    async with Host({"/a": echo, "/cut": cuts, "/gone": hangs_up}) as host, host.http(root) as http:
        for path in ("/a", "/cut", "/gone"):
            with pytest.raises(HttpTransient) as caught:
                await http.get(f"{host.url}{path}?page=secret-page", token=Secret("t0ken-x"))
            error = caught.value
            told = f"{error!r} {error.__cause__!r} {error.__context__!r} {error.body!r} {dict(error.headers)}"
            assert "t0ken-x" not in told
            assert "secret-page" not in told
        assert {r.headers["Authorization"] for r in host.requests} == {"Bearer t0ken-x"}
    kept = "".join(root.read(f).decode() for f in root.files("state"))
    ours = "".join(r.getMessage() for r in caplog.records if r.name.startswith("tasks."))
    assert ours.count("trying again") == 6
    assert "t0ken-x" not in kept + caplog.text
    assert "secret-page" not in ours


@pytest.mark.parametrize(
    "url", ["ftp://h.example/a", "/a", "http://", "http://h:port/a", "http://me:pw@127.0.0.1:1/a", ""]
)
@in_loop
async def test_urls_that_cannot_be_asked_are_refused_without_a_request(root: Root, url: str) -> None:
    async with http_of(root) as http:
        with pytest.raises(HttpTerminal) as caught:
            await http.get(url)
        assert caught.value.reason == "refused"
        assert "pw" not in f"{caught.value!r}"
        assert http.requests == 0


@in_loop
async def test_a_download_is_whole_or_not_there(root: Root, tmp_path: Path) -> None:
    body = b"honey" * 50_000
    replies: dict[str, Reply | list[Reply]]
    replies = {"/a": [cuts, says(body)], "/b": says(b"", 404), "/c": cuts}
    target = tmp_path / "new" / "folder" / "a.zip"
    async with Host(replies) as host, host.http(root) as http:
        answer = await http.download(f"{host.url}/a", target)
        assert (answer.status, answer.body, target.read_bytes()) == (200, b"", body)
        for path, kind in (("/b", HttpTerminal), ("/c", HttpTransient)):
            with pytest.raises(kind):
                await http.download(f"{host.url}{path}", target.with_name("b.zip"))
        assert [f.name for f in target.parent.iterdir()] == ["a.zip"]
        with pytest.raises(StorageError, match="cannot be written"):  # no fault of the host
            await http.download(f"{host.url}/a", target / "b.zip")


def test_a_secret_shows_itself_when_asked_by_name_alone() -> None:
    secret = Secret(" t0ken-x\n")
    assert secret.reveal() == "t0ken-x"
    assert f"{secret} {secret!r} {[secret]}".count("***") == 3
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        json.dumps(secret)
    one, two = Secret("sk_live_one"), Secret("sk_live_two")
    assert one.fingerprint() == Secret("sk_live_one").fingerprint() != two.fingerprint()
    assert len(one.fingerprint()) == 12
    assert (one == Secret("sk_live_one"), one == two, one == "sk_live_one") == (True, False, False)
    assert len({one, two, Secret("sk_live_one")}) == 2
    for nothing in (Secret(None), Secret(""), Secret("  \n")):
        assert (bool(nothing), bool(one), nothing.hide(b"a body")) == (False, True, b"a body")


@pytest.mark.parametrize("value", ["two\r\nlines", "caf\u00e9", "a\x00b"])
def test_what_no_header_can_carry_is_refused_unseen(value: str) -> None:
    with pytest.raises(WrongInput) as caught:
        Secret(value)
    assert value not in str(caught.value)


@pytest.mark.parametrize("url", WRONG)
@pytest.mark.parametrize(
    ("spec", "service"),
    [
        ("skillsmp", "skillsmp_url"),
        ("github:owner/repo", "github_api_url"),
        ("mcp-registry", "mcp_registry_url"),
    ],
)
def test_an_address_that_cannot_be_asked_fails_its_source_and_keeps_its_password(
    tmp_path: Path, url: str, spec: str, service: str
) -> None:
    source = open_source(spec, CrawlContext(Root(tmp_path), NOW, settings=CrawlSettings(**{service: url})))
    with pytest.raises(SourceError) as caught:
        list(source.read())
    assert "127.0.0.1" in str(caught.value) or "[" in str(caught.value)
    assert "secret" not in str(caught.value)
