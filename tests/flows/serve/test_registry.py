"""The registry that a server is: the bytes that `publish` writes, under tags, for every form of client."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest

from flows.commands.registries import publish_registry
from flows.serve.answers.service import Service, load_serving
from flows.serve.registry import LiveRegistry
from flows.settings import load_settings
from tests.support.crawl.crawling import Crawler, settings_of
from tests.support.registry_client import added, discovered, discovered_before, files_in
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import KEY, SECOND
from tests.support.serving import Here, Serving

INDEX = "/.well-known/agent-skills/index.json"


def asked(
    server: Here | Serving, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()


def test_a_server_answers_what_publish_writes(
    server: Here, storied: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three forms hold the same files, and each address the bytes of the file of the same path."""
    monkeypatch.setenv("SKILLERY_INSTALL_REFUSE", "")
    publish_registry(storied.root, str(tmp_path), public_url=server.url)
    files = files_in(tmp_path)
    paths = [path for path in files if path.startswith((".well-known/", "marketplace"))]
    assert {path: asked(server, f"/{path}")[1] for path in paths} == {p: files[p] for p in paths}
    skills = discovered(server.url)
    assert skills == discovered_before(server.url) == added(f"{server.url}/marketplace.json")
    assert skills["bread"]["SKILL.md"] == SECOND.encode()
    assert KEY.encode() not in skills["bread"]["keys.env"]


@pytest.mark.parametrize("form", ["well-known:{}", "marketplace:{}/marketplace.json"])
def test_a_crawl_of_a_server_brings_back_what_it_offers(form: str, server: Here, tmp_path: Path) -> None:
    crawler = Crawler(tmp_path, settings_of({}))
    crawler.crawl(spec := form.format(server.url))
    brought = {
        # Ids out of a marketplace's archives name the marketplace, behind the plugin's name.
        row["doc_id"].rpartition("/")[2].partition("~")[0]: {
            "SKILL.md": row["content"], **{file["path"]: file["content"] for file in row["contents"]},
        }
        for row in crawler.raw()
    }  # fmt: skip
    assert brought == discovered(server.url)
    again = crawler.crawl(spec)
    assert (again.unchanged, again.requests) == (len(brought), 1)


def test_what_a_client_holds_is_not_sent_again(server: Here) -> None:
    """Each address has a tag, and answers HEAD; an archive is as good as for ever."""
    archive = next(iter(_archives(server)))
    for path, kept in ((INDEX, "no-cache"), ("/marketplace.json", "no-cache"), (archive, "immutable")):
        status, content, headers = asked(server, path)
        assert (status, kept in headers["cache-control"]) == (200, True)
        again = asked(server, path, **{"If-None-Match": headers["etag"]})
        assert again[:2] == (304, b"")
        head = asked(server, path, "HEAD")
        assert (head[0], head[1], head[2]["content-length"]) == (200, b"", str(len(content)))


@pytest.mark.parametrize(
    ("wanted", "status", "part"),
    [
        ("bytes=0-9", 206, slice(0, 10)), ("bytes=100-", 206, slice(100, None)),
        ("bytes=-7", 206, slice(-7, None)), ("bytes=0-99999999", 206, slice(None)),
        ("bytes=99999999-", 416, slice(0, 0)), ("bytes=-0", 416, slice(0, 0)),
        ("bytes=0-1,5-6", 200, slice(None)), ("bytes=-", 200, slice(None)), ("bytes=5-3", 200, slice(None)),
        ("lines=0-1", 200, slice(None)),
    ],
)  # fmt: skip
def test_an_archive_is_sent_in_parts(server: Here, wanted: str, status: int, part: slice) -> None:
    """Of another file than the caller holds a part of, all is sent."""
    archive = next(iter(_archives(server)))
    _, whole, headers = asked(server, archive)
    assert headers["accept-ranges"] == "bytes"
    got, content, told = asked(server, archive, Range=wanted)
    assert (got, content) == (status, whole[part])
    if status == 206:
        first, last = told["content-range"].removeprefix("bytes ").partition("/")[0].split("-")
        assert whole[int(first) : int(last) + 1] == content
        assert asked(server, archive, Range=wanted, **{"If-Range": '"other"'})[1] == whole


def _archives(server: Here) -> list[str]:
    found = asked(server, INDEX)[1].decode().split('"url":"')[1:]
    return [f"/.well-known/agent-skills/{part.partition(chr(34))[0]}" for part in found]


def test_what_is_not_offered_is_not_there(server: Here) -> None:
    """The answer is JSON, as programs ask."""
    archive = f"agent-skills/archives/{'0' * 64}.zip"
    others = ("skills/none/SKILL.md", "skills/bread/../../etc/passwd", "skills/bread/none.md", "other")
    for path in (archive, *others):
        status, content, _ = asked(server, f"/.well-known/{path}", Accept="text/html")
        assert (status, content[:1]) == (404, b"{"), path


def test_a_marketplace_names_the_public_address(limited: Serving) -> None:
    """Claude takes archives over https alone, which a proxy speaks; a grave skill stays out."""
    content = asked(limited, "/marketplace.json")[1].decode()
    assert '"url":"https://skills.example.org/hub/.well-known/agent-skills/archives/' in content
    assert '"name":"skillery-skills-example-org"' in content
    assert '"name":"bread"' not in content


def test_many_skills_are_read_by_a_process_that_goes_with_the_memory_it_took(
    storied: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(storied.root, load_settings(), load_serving())
    releases = []
    for at_once in (1000, 1):
        monkeypatch.setattr("flows.serve.registry._AT_ONCE", at_once)
        registry = LiveRegistry(service)
        releases.append(asyncio.run(registry.release()))
        registry.close()
    service.close()
    assert releases[0] == releases[1]
    assert releases[0].archives
    assert multiprocessing.active_children() == []


def test_where_others_are_to_reach_it_the_indexes_are_made_when_it_starts(storied: SkillRoot) -> None:
    """The first client of a large registry would give up before they are."""

    def makers() -> int:
        return sum(thread.name.startswith("registry") for thread in threading.enumerate())

    service = Service(storied.root, load_settings(), load_serving())
    for url in (None, "https://skills.example.org"):
        registry, before = LiveRegistry(service, url), makers()
        registry.warm()
        assert (makers() > before) is (url is not None)
        registry.close()
    service.close()
