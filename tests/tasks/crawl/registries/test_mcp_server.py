"""MCP servers with the Skills extension: only what changed is read, and nothing that does not verify."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.crawl.registries import mcp_server
from tasks.crawl.registries.discovery import digest_of
from tasks.crawl.registries.mcp_server import EXTENSION
from tasks.crawl.sources import normal_spec
from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.registries import Page, SkillServer


@pytest.fixture
def server() -> Iterator[SkillServer]:
    with SkillServer() as server:
        server.skills = {
            f"sea/{n}": {"SKILL.md": grows(n), "ref/soil.bin": b"\xff\0"} for n in ("kelp", "moss", "tide")
        }
        yield server


@pytest.fixture
def crawler(tmp_path: Path) -> Crawler:
    return Crawler(tmp_path, settings_of({}))


def test_only_what_changed_is_read_what_is_gone_is_asked_for(server: SkillServer, crawler: Crawler) -> None:
    spec = f"mcp:{server.url}/mcp"
    assert crawler.crawl(spec).new == 3
    assert crawler.held() == {f"127.0.0.1/mcp/sea/{n}": grows(n) for n in ("kelp", "moss", "tide")}
    assert crawler.raw()[0]["contents"] == [{"path": "ref/soil.bin", "content": b"\xff\0"}]

    server.called()
    assert crawler.crawl(spec).unchanged == 3
    assert server.called() == ["server/discover", "skills/list", "skills/list"]

    server.skills["sea/kelp"]["SKILL.md"] = grows("kelp", "Leave it.")
    server.unlisted = {"sea/moss"}
    del server.skills["sea/tide"]
    report = crawler.crawl(spec)
    assert (report.changed, report.unchanged, report.retired) == (1, 1, 1)
    assert server.called() == [
        "server/discover", "skills/list", *["resources/read"] * 2, "skills/get", "skills/get",
    ]  # fmt: skip
    assert sorted(crawler.held()) == ["127.0.0.1/mcp/sea/kelp", "127.0.0.1/mcp/sea/moss"]
    del server.skills["sea/moss"]
    server.code = -32603  # an error of another kind does not say that it is gone
    assert (crawler.crawl(spec).retired, crawler.stale()) == (0, {"127.0.0.1/mcp/sea/moss"})


def test_a_list_is_not_asked_for_while_it_is_called_good(server: SkillServer, crawler: Crawler) -> None:
    """A server that says so for longer than a source may go unlooked at is asked all the same."""
    spec = f"mcp:{server.url}/mcp"
    server.ttl = 36 * 3_600_000
    crawler.crawl(spec)
    server.called()
    night = crawler.crawl(spec)
    assert (night.unchanged, night.requests, server.called()) == (3, 0, [])
    server.ttl = 10**11
    for called in (True, True):
        crawler.crawl(spec)
        assert bool(server.called()) is called
    server.entries, server.ttl = {"sea/kelp": {"resources": "dynamic"}}, 36 * 3_600_000
    crawler.crawl(spec)
    server.called()
    crawler.crawl(spec)  # what was missed is asked for
    assert server.called()


def test_answers_may_come_as_events(server: SkillServer, crawler: Crawler) -> None:
    def streamed(call: dict[str, Any]) -> Page:
        events = f'event: progress\r\ndata: {{"id": -1}}\r\n\r\ndata: {json.dumps(server.answer(call))}\n\n'
        return 200, {"Content-Type": "text/event-stream"}, events.encode()

    server.pages["/mcp"] = streamed
    assert crawler.crawl(f"mcp:{server.url}/mcp").new == 3


OTHER = digest_of(b"other")
KELP = "skill://sea/kelp/SKILL.md"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"resources": [{"uri": KELP, "digest": OTHER, "size": 1}]}, "digest-mismatch"),
        ({"resources": [{"uri": KELP, "digest": digest_of(grows("kelp")), "size": 1}]}, "digest-mismatch"),
        ({"resources": "dynamic"}, "malformed"),
        ({"resources": None}, "malformed"),
        ({"resources": [{"uri": "skill://sea/kelp/../x", "digest": OTHER, "size": 1}]}, "malformed"),
        ({"resources": [{"uri": "file:///etc/passwd", "digest": OTHER, "size": 1}]}, "malformed"),
        ({"uri": "skill://../SKILL.md"}, "malformed"),
        ({"uri": 7}, "malformed"),
        ({"uri": "\ud800://sea/kelp/SKILL.md"}, "malformed"),
        (
            {"resources": [{"uri": f"{KELP}{n}", "digest": OTHER, "size": 1} for n in range(2_001)]},
            "malformed",
        ),
    ],
)
def test_an_entry_that_does_not_verify_is_named(
    server: SkillServer, crawler: Crawler, entry: dict[str, Any], reason: str
) -> None:
    server.entries = {"sea/kelp": entry}
    report = crawler.crawl(f"mcp:{server.url}/mcp")
    assert (report.new, report.failed) == (2, {reason: 1})


def floods(call: dict[str, Any]) -> dict[str, Any]:
    """Answer as a server that lists more skills than anybody has."""
    capabilities = {"extensions": {EXTENSION: {}}}
    return {"id": call["id"], "result": {"capabilities": capabilities, "skills": [{}] * 100_001}}


def never_ends(call: dict[str, Any]) -> dict[str, Any]:
    """Answer as a server whose list has no skill and no end."""
    following = int(call.get("params", {}).get("cursor") or 0) + 1
    result = {"capabilities": {"extensions": {EXTENSION: {}}}, "skills": [], "nextCursor": str(following)}
    return {"id": call["id"], "result": result}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"pages": {"/mcp": floods}}, "too-many"), ({"pages": {"/mcp": never_ends}}, "too-many"),
        ({"extensions": {}}, "no-skills"), ({"cursor": "0"}, "shape"),
        ({"pages": {"/mcp": b"{}"}}, "shape"), ({"pages": {"/mcp": (404, {}, b"")}}, "missing"),
        ({"pages": {"/mcp": (401, {}, b'{"error": "unauthorised"}')}}, "unauthorised"),
        ({"pages": {"/mcp": (302, {"Location": "http://10.0.0.1/"}, b"")}}, "redirect"),
    ],
)  # fmt: skip
def test_a_server_that_fails_leaves_all_as_it_was(
    server: SkillServer, crawler: Crawler, fault: dict[str, Any], reason: str
) -> None:
    spec = f"mcp:{server.url}/mcp"
    crawler.crawl(spec)
    vars(server).update(fault)
    report = crawler.crawl(spec)
    assert report.failed == {reason: 1}
    assert len(crawler.held()) == 3


SCRIPT = """
import json, sys, time
for line in sys.stdin:
    call = json.loads(line)
    print("a line for people", flush=True)
    text = "---\\nname: kelp\\ndescription: Grows kelp.\\n---\\nSwim.\\n"
    if sys.argv[1] == "hang" or (sys.argv[1], call["method"]) == ("stuck", "resources/read"): time.sleep(60)
    while sys.argv[1] == "flood": print("{}")
    import hashlib
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    names = ["kelp", "moss", "tide"] if sys.argv[1] == "stuck" else ["kelp"]
    rows = [{"uri": f"skill://{name}/SKILL.md", "digest": digest, "size": len(text)} for name in names]
    result = {
        "server/discover": {"capabilities": {"extensions": {"io.modelcontextprotocol/skills": {}}}},
        "skills/list": {"skills": [{"uri": row["uri"], "resources": [row]} for row in rows]},
        "resources/read": {"contents": [{"text": text}]},
    }[call["method"]]
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    ("way", "failed"),
    [
        ("well", {}), ("hang", {"timeout": 1}), ("stuck", {"timeout": 2}), ("flood", {"connection": 1}),
        ("end", {"connection": 1}),
    ],
)  # fmt: skip
def test_a_command_is_run_as_it_was_typed_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, failed: dict[str, int]
) -> None:
    monkeypatch.setattr(mcp_server, "_MOST_HUNG", 1)  # after which the third of three skills is not asked for
    script = tmp_path / "my server.py"
    script.write_text(SCRIPT if way != "end" else "")
    timeout = 1.5 if failed.get("timeout") else 20
    crawler = Crawler(tmp_path / "root", settings_of({}, request_timeout=timeout))
    report = crawler.crawl(f"mcp:stdio:{sys.executable} '{script}' {way}")
    assert report.failed == failed
    assert len(crawler.held()) == (not failed)
    if not failed:
        assert next(iter(crawler.held())) == f"local/{Path(sys.executable).name}/kelp"


def test_a_command_is_no_spec_without_words() -> None:
    assert normal_spec("mcp:e.org/mcp/") == "mcp:https://e.org/mcp"
    for spec in ("mcp:stdio:", "mcp:stdio:x --token 'f44f4", "mcp:ftp://e.org"):
        with pytest.raises(WrongInput) as refused:
            normal_spec(spec)
        assert "f44f4" not in str(refused.value)
    for words in (
        "serve --api-key a8Kf5f167f44f4Q64e6c9", "env API_KEY=a8f5f167f44f4964e6c998dee827110c x",
        "serve --password f44f4", "env SEA_TOKEN=f44f4 serve", "serve --secret=f44f4",
        "serve -H 'Authorization: Bearer f44f4'", "serve http://ann:f44f4Qx@e.org/",
        "serve --pass f44f4", "serve --private-key f44f4", "env ACCESS_KEY=f44f4 serve",
        "serve e.org/?key=f44f4", "serve -c 'x --pat f44f4'", "serve -p f44f4", "serve --key=f44f4",
        "serve --auth ann:f44f4", "serve -u ann:f44f4", "serve -c 'x --key f44f4.f44f4'",
    ):  # fmt: skip
        with pytest.raises(WrongInput, match=r"stdio:(serve|env): .* environment") as refused:
            normal_spec(f"mcp:stdio:{words}")
        assert "f44f4" not in str(refused.value)
    for words in (
        "serve --max-tokens 100", "serve --token-file /run/x", "npx -y @sea/server@1.2.3 --port 80",
        "serve --no-token --port 80", "serve --keyboard=x --path=y", "serve --tokenizer cl100k",
        "docker run sea@sha256:" + "a1" * 32, "npx -y -p @sea/server sea", "docker run -u 10:10 -p 80:80 sea",
        "serve --key ./sea --auth oauth", "serve --key sea.pem",
    ):  # fmt: skip
        assert normal_spec(f"mcp:stdio:{words}") == f"mcp:stdio:{words}"
