from __future__ import annotations

import asyncio
import base64
import copy
import functools
import itertools
import math
import multiprocessing
import operator
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from flows.commands.registries import publish_registry
from flows.serve.answers.service import Service, load_serving
from flows.serve.registry import LiveRegistry
from flows.settings import load_settings
from tests.support.command import Ask
from tests.support.crawl.crawling import Crawler, settings_of
from tests.support.registry_client import added, discovered, discovered_before, files_in
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import BREAD_ID, KEY, LOGO, PIPED, SECOND
from tests.support.serving import Here, Serving, ask_http


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("/api/search?q=bake+bread&k=2", ["search", "bake bread", "-k", "2"]),
        ("/api/search?q=hive&explain=true&kind=skill", ["search", "hive", "--explain", "--kind", "skill"]),
        ("/api/search?q=hive&risk=none&risk=remote.pipe-to-shell", [
            "search", "hive", "--risk", "none", "--risk", "remote.pipe-to-shell",
        ]),
        ("/api/search?q=hive&source=dir", ["search", "hive", "--source", "dir"]),
        ("/api/search?q=hive&method=bm25-full", ["search", "hive", "--method", "bm25-full"]),
        ("/api/search?q=hive&min_fit=0.5", ["search", "hive", "--min-fit", "0.5"]),
        ("/api/page?doc_id=bread&q=how+long%3F&budget=0.4", ["page", "bread", "how long?", "--budget=0.4"]),
        ("/api/skills/bread", ["show", "bread"]),
        (f"/api/skills/{BREAD_ID}?file=scripts/knead.sh", ["show", BREAD_ID, "--file", "scripts/knead.sh"]),
        ("/api/status", ["status"]),
    ],
)  # fmt: skip
def test_an_answer_is_that_of_the_command(
    server: Here, storied: SkillRoot, ask: Ask, target: str, command: list[str]
) -> None:
    def without_time(found: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in found.items() if k not in {"took_ms", "age_hours"}}

    answer = ask_http(server, target)
    assert answer.status == 200, answer.body
    printed = ask.told(*command, "--root", storied.root.uri)
    same = without_time(answer.json())
    if command[0] == "show":
        assert same.pop("index_version") == storied.served().version
    assert same == without_time(printed)


def test_a_file_comes_raw_and_no_browser_runs_it(server: Here) -> None:
    text = ask_http(server, "/api/skills/bread?form=raw")
    assert (text.body, text.headers["content-type"]) == (SECOND.encode(), "text/markdown; charset=utf-8")
    script = ask_http(server, "/api/skills/bread?form=raw&file=scripts/knead.sh")
    assert (script.body, script.headers["content-type"]) == (PIPED, "application/octet-stream")
    assert script.headers["content-disposition"] == "attachment"
    logo = ask_http(server, "/api/skills/local/market/old/bees?file=logo.png").json()
    assert base64.b64decode(logo["base64"]) == LOGO


@pytest.mark.parametrize(
    "target", ["/api/search?q=bread", "/api/page?doc_id=bread&q=rise", "/api/skills/bread?form=raw"]
)
def test_an_answer_that_the_caller_holds_is_not_sent_again(
    server: Here, storied: SkillRoot, target: str
) -> None:
    first = ask_http(server, target)
    assert storied.served().version in first.headers["etag"]
    again = ask_http(server, target, if_none_match=first.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert ask_http(server, target, if_none_match='W/"other"').status == 200
    other = ask_http(server, "/api/search?q=bees", if_none_match=first.headers["etag"])
    assert (other.status, other.headers["etag"] != first.headers["etag"]) == (200, True)


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/api/search", 400, "query.q"),
        ("/api/search?q=a&k=0", 400, "query.k"),
        ("/api/search?q=a&method=rrf", 400, "'rrf' is not loaded here, default, bm25-full are"),
        ("/api/search?q=%20", 400, "blank"),
        ("/api/search?q=a&min_fit=2", 400, "query.min_fit"),
        ("/api/search?q=a&kind=tool", 400, "skill or mcp-server"),
        ("/api/search?q=a&risk=hidden", 400, "risk 'hidden': nothing served has it"),
        ("/api/search?q=a&licences=MIT", 400, "takes q, k, kind, licence, source, risk, explain, min_fit"),
        ("/api/status?age=1", 400, "takes none"),
        ("/api/page?doc_id=bread&q=a&method=x", 400, "method 'x'"),
        ("/api/page?doc_id=rye&q=a", 404, "'rye'"),
        ("/api/skills/rye", 404, "'rye'"),
        ("/api/skills/", 400, "characters"),
        ("/api/skills/bread?file=../../etc/passwd", 400, "has no file"),
        ("/api/nothing", 404, "/docs"),
        ("/api/skills/..%2f..%2fetc%2fpasswd", 404, "no served document"),
        ("/mcp", 405, "/docs"),
        (f"/api/search?q={'x' * 20_001}", 400, "query.q"),
        (f"/api/search?q={'x' * 40_000}", 414, "longer than"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_a_line(server: Here, target: str, status: int, said: str) -> None:
    answer = ask_http(server, target)
    assert (answer.status, answer.json()["status"]) == (status, status)
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert "--" not in answer.json()["error"], "an option of the command"


def test_every_tool_is_there_over_http_too(server: Here) -> None:
    tool = "/api/tools/search_skills"
    found = ask_http(server, tool, {"task": "bake bread", "k": 1})
    assert found.json()["results"][0]["doc_id"] == BREAD_ID
    assert [ask_http(server, tool, given).status for given in ({"task": 1}, b"{", [1])] == [400] * 3


_WHOLE: dict[str, dict[str, Any]] = {
    "search_skills": {
        "task": "bees", "k": 1, "filters": {"kind": [], "licence": [], "source": [], "risk": []},
    },
    "page_skill": {"doc_id": "local/market/bees", "request": "feed", "budget": 50},
    "show_skill": {"doc_id": "local/market/bees"},
    "read_skill_file": {"doc_id": "local/market/bees", "path": "SKILL.md", "offset": 0, "limit": 10},
    "compose_plan": {"task": "Feed the bees.", "k": 1, "filters": {"kind": []}},
    "suggest_steps": {
        "task": "x", "state": {"observation": "", "url": "", "previous": []}, "domain": "x", "k": 1,
    },
}  # fmt: skip
_ODD = (None, "\ud800", 10**400, -1, 1.5, math.nan, True, "", [], {}, ["\ud800"], [None], {"a": None}, "\0")


@pytest.mark.parametrize("tool", _WHOLE)
def test_odd_arguments_are_left_out_or_refused_in_a_line(server: Here, tool: str) -> None:
    whole = _WHOLE[tool]
    folders = [(), *((name,) for name in whole if isinstance(whole[name], dict))]
    within = [(*folder, name) for folder in folders for name in _at(whole, folder)]
    for place, odd in itertools.product(within, _ODD):
        given = copy.deepcopy(whole)
        _at(given, place[:-1])[place[-1]] = odd
        answer = ask_http(server, f"/api/tools/{tool}", given)
        said = answer.body.decode() if answer.status != 200 else ""
        assert answer.status in (200, 400, 404), (place, odd, said)
        assert not re.search(r"Form\b|Error|pydantic|Traceback|/tmp/|\\n", said), (place, odd, said)
        if odd is None and place[-1] not in {"task", "doc_id", "request", "state", "observation"}:
            assert said == "" or "no learned skills" in said, (place, said)


def _at(given: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    return functools.reduce(operator.getitem, place, given)


def test_the_api_is_described(server: Here) -> None:
    described = ask_http(server, "/openapi.json").json()
    assert {"/api/search", "/api/page", "/api/skills/{doc_id}", "/api/status"} <= described["paths"].keys()
    taken = described["paths"]["/api/tools/page_skill"]["post"]["requestBody"]["content"]
    assert taken["application/json"]["schema"]["properties"].keys() >= {"doc_id", "request", "budget"}
    assert b"GET /api/search" in ask_http(server, "/docs").body


def test_health_and_metrics_are_told(server: Here) -> None:
    ask_http(server, "/api/search?q=bread")
    ask_http(server, "/nothing/of/any/name")
    assert ask_http(server, "/healthz").json() == {"status": "ok", "published": True}
    lines = ask_http(server, "/metrics").body.decode().splitlines()
    assert any(line.startswith('skillery_requests_total{route="other",status="404"}') for line in lines)
    assert any(line.startswith('skillery_request_seconds_count{route="/api/search"}') for line in lines)
    assert "skillery_readable 1.0" in lines
    (waiting,) = [line for line in lines if line.startswith("skillery_usage_queue ")]
    assert float(waiting.split()[1]) >= 1, "the search waits to be written"


INDEX = "/.well-known/agent-skills/index.json"


def test_a_server_answers_what_publish_writes(
    server: Here, storied: SkillRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three forms hold the same files, and each address the bytes of the file of the same path."""
    monkeypatch.setenv("SKILLERY_INSTALL_REFUSE", "")
    publish_registry(storied.root, str(tmp_path), public_url=server.url)
    files = files_in(tmp_path)
    paths = [path for path in files if path.startswith((".well-known/", "marketplace"))]
    assert {path: ask_http(server, f"/{path}").body for path in paths} == {p: files[p] for p in paths}
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
        first = ask_http(server, path)
        assert (first.status, kept in first.headers["cache-control"]) == (200, True)
        again = ask_http(server, path, if_none_match=first.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        head = ask_http(server, path, method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(first.body))


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
    whole = ask_http(server, archive)
    assert whole.headers["accept-ranges"] == "bytes"
    got = ask_http(server, archive, range=wanted)
    assert (got.status, got.body) == (status, whole.body[part])
    if status == 206:
        first, last = got.headers["content-range"].removeprefix("bytes ").partition("/")[0].split("-")
        assert whole.body[int(first) : int(last) + 1] == got.body
        assert ask_http(server, archive, range=wanted, if_range='"other"').body == whole.body


def _archives(server: Here) -> list[str]:
    found = ask_http(server, INDEX).body.decode().split('"url":"')[1:]
    return [f"/.well-known/agent-skills/{part.partition(chr(34))[0]}" for part in found]


def test_what_is_not_offered_is_not_there(server: Here) -> None:
    """The answer is JSON, as programs ask."""
    archive = f"agent-skills/archives/{'0' * 64}.zip"
    others = ("skills/none/SKILL.md", "skills/bread/../../etc/passwd", "skills/bread/none.md", "other")
    for path in (archive, *others):
        answer = ask_http(server, f"/.well-known/{path}", accept="text/html")
        assert (answer.status, answer.body[:1]) == (404, b"{"), path


def test_a_marketplace_names_the_public_address(limited: Serving) -> None:
    """Claude takes archives over https alone, which a proxy speaks; a grave skill stays out."""
    content = ask_http(limited, "/marketplace.json").body.decode()
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
