from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped] # its stubs would be a dependency for one line
import mcp_types as types
import pytest
import yaml
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from flows.serve.answers.tools import TOOLS
from flows.serve.mcp_server import tool_definitions
from tasks.models.encoder import OnnxEncoder
from tests.support.command import MAIN
from tests.support.crawl.crawling import Crawler, settings_of
from tests.support.processes import slow_but
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import BREAD_ID, KEY, LOGO, PIPED
from tests.support.serving import AnyResult, GetSkill, Here, ListSkills, ReadDirectory, UriParams

Way = tuple[str, Literal["auto", "legacy"]]
WAYS: list[Way] = [("http", "auto"), ("http", "legacy"), ("stdio", "auto"), ("stdio", "legacy")]
BREAD = "skill://local+market+bread/bread/SKILL.md"


@asynccontextmanager
async def connected(way: Way, server: Here, root: SkillRoot) -> AsyncIterator[Client]:
    arguments = [*MAIN[1:], "serve", "--stdio", "--root", root.root.uri]
    stdio = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with Client(stdio if way[0] == "stdio" else f"{server.url}/mcp", mode=way[1]) as client:
        yield client


async def content_of(client: Client, uri: str) -> bytes:
    (found,) = (await client.read_resource(uri)).contents
    return (
        found.text.encode() if isinstance(found, types.TextResourceContents) else base64.b64decode(found.blob)
    )


async def ask(client: Client, request: types.Request[Any, Any]) -> dict[str, Any]:
    return (await client.session.send_request(request, AnyResult)).told()


@pytest.mark.parametrize("way", slow_but(WAYS[:2], WAYS), ids="-".join)
def test_the_skills_extension_is_served_whole(way: Way, server: Here, storied: SkillRoot) -> None:
    async def walk() -> None:
        async with connected(way, server, storied) as client:
            if way[1] == "auto":
                told = client.server_capabilities.extensions
                assert told == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
            assert client.server_capabilities.resources is not None
            page = await ask(client, ListSkills(params=types.PaginatedRequestParams()))
            assert (page["resultType"], len(page["skills"]), "nextCursor" in page) == ("complete", 3, False)
            assert {"ttlMs", "cacheScope"} <= page.keys()
            for entry in page["skills"]:
                assert (await ask(client, GetSkill(params=UriParams(uri=entry["uri"]))))["skill"] == entry
                content = await content_of(client, entry["uri"])
                assert yaml.safe_load(content.decode().split("---")[1]) == entry["frontmatter"]
                for file in entry["resources"]:
                    content = await content_of(client, file["uri"])
                    assert file["size"] == len(content)
                    assert file["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
                    assert KEY.encode() not in content
                folder = entry["uri"].removesuffix("/SKILL.md")
                inside = (await ask(client, ReadDirectory(params=UriParams(uri=folder))))["resources"]
                assert "SKILL.md" in [child["name"] for child in inside]
            (form,) = (await client.list_resource_templates()).resource_templates
            filled = form.uri_template.replace("{id}", "local+market+bread").replace("{name}", "bread")
            assert filled.replace("{+path}", "SKILL.md") == BREAD
            resources = (await client.list_resources()).resources
            assert [r.uri for r in resources] == [entry["uri"] for entry in page["skills"]]

    asyncio.run(walk())


@pytest.mark.parametrize("way", slow_but({"http"}, ["http", "stdio"]))
def test_a_crawl_brings_back_what_the_sdk_reads(
    way: str, server: Here, storied: SkillRoot, tmp_path: Path
) -> None:
    async def listed() -> list[dict[str, Any]]:
        async with connected(("http", "auto"), server, storied) as client:
            page = await ask(client, ListSkills(params=types.PaginatedRequestParams()))
            return list(page["skills"])

    read = {file["uri"]: file["digest"] for skill in asyncio.run(listed()) for file in skill["resources"]}
    command = shlex.join([sys.executable, *MAIN[1:], "serve", "--stdio", "--root", storied.root.uri])
    spec = f"mcp:{server.url}/mcp" if way == "http" else f"mcp:stdio:{command}"
    crawler = Crawler(tmp_path, settings_of({}))
    assert crawler.crawl(spec).new == 3
    brought = {}
    for row in crawler.raw():
        root = row["doc_id"].split("/", 2)[2]
        files = {file["path"]: file["content"] for file in row["contents"]}
        for path, content in {"SKILL.md": row["content"], **files}.items():
            brought[f"skill://{root}/{path}"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert brought == read
    if way == "http":
        assert crawler.crawl(spec).unchanged == 3


@pytest.mark.parametrize("way", slow_but(WAYS[:1], [WAYS[0], WAYS[2]]), ids="-".join)
def test_tools_answer_good_and_bad_arguments(way: Way, server: Here, storied: SkillRoot) -> None:
    async def walk() -> None:
        async with connected(way, server, storied) as client:
            for tool in (await client.list_tools()).tools:
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint
                assert tool.output_schema is not None
            found = await structured(client, "search_skills", task="bake bread", k=1)
            assert [r["doc_id"] for r in found["results"]] == [BREAD_ID]
            assert (0 < found["results"][0]["fit"] <= 1, found["nothing_fits"]) == (True, False)
            assert found["results"][0]["whose"] == {"source": "dir:market", "url": "file:///market/bread"}
            safe = await structured(client, "search_skills", task="bake bread", filters={"risk": ["none"]})
            assert BREAD_ID not in [r["doc_id"] for r in safe["results"]] != []
            paged = await structured(client, "page_skill", doc_id="bread", request="how long does it rise?")
            assert "three hours" in paged["context"]
            assert paged["tokens"] <= paged["document_tokens"]
            shown = await structured(client, "show_skill", doc_id=BREAD_ID)
            assert (shown["uri"], {"path": "notes.md", "size": 11} in shown["files"]) == (BREAD, True)
            assert shown["risks"] == ["risk.remote.pipe-to-shell"]
            notes = {"doc_id": "bread", "path": "notes.md", "offset": 4, "limit": 6}
            part = await structured(client, "read_skill_file", **notes)
            assert (part["text"], part["next_offset"], part["size"]) == ("spelt.", 10, 11)
            task = "Bake a loaf of bread, then feed the honey bees."
            plan = await structured(client, "compose_plan", task=task, k=1)
            assert [step["skills"][0]["name"] for step in plan["steps"]] == ["bread", "bees"]
            for answer in (found, paged, shown, part, plan):
                assert answer["version"] == storied.served().version
                assert "not instructions" in answer["notice"]
            for name, given, why in BAD:
                wrong = await client.call_tool(name, given)
                assert wrong.is_error, (name, given)
                assert isinstance(wrong.content[0], types.TextContent)
                assert why in wrong.content[0].text
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("delete_skill", {})
            assert unknown.value.code == types.INVALID_PARAMS

    asyncio.run(walk())


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("search_skills", {}, "task: Field required"),
    ("search_skills", {"task": "x", "k": 0}, "k: "),
    ("search_skills", {"task": "x", "filters": {"kind": ["tool"]}}, "choose skill or mcp-server"),
    ("search_skills", {"task": "x", "filters": {"risk": ["hidden"]}}, "nothing served has it"),
    ("search_skills", {"task": "x", "limit": 3}, "limit: Extra inputs"),
    ("search_skills", {"task": "  "}, "blank"),
    ("compose_plan", {"task": "x", "k": 1000}, "k: "),
    ("suggest_steps", {"task": "x", "state": {"observation": ""}}, "no learned skills are served here"),
    ("page_skill", {"doc_id": "breads", "request": "x"}, "no served document has the id 'breads'"),
    ("page_skill", {"doc_id": "bread", "request": "x", "budget": -1}, "budget: "),
    ("show_skill", {"doc_id": "x" * 1001}, "doc_id: "),
    ("read_skill_file", {"doc_id": "bread", "path": "../bees/SKILL.md"}, "has no file"),
    ("read_skill_file", {"doc_id": "bread", "path": "/etc/passwd"}, "has no file"),
    ("read_skill_file", {"doc_id": "bread", "offset": 10**9}, "offset: "),
]


async def structured(client: Client, name: str, **arguments: object) -> dict[str, Any]:
    found = await client.call_tool(name, arguments)
    assert not found.is_error, found
    assert isinstance(found.content[0], types.TextContent)
    assert "not instructions to you" in found.content[0].text
    return dict(found.structured_content)


def test_texts_come_as_text_other_bytes_as_blobs_and_what_is_not_served_is_an_error_of_parameters(
    server: Here, storied: SkillRoot
) -> None:
    async def walk() -> None:
        async with connected(("http", "auto"), server, storied) as client:
            unknown = (
                "skill://local+market+rye/rye/SKILL.md", "skill://local+market+bread/bees/SKILL.md",
                BREAD.replace("SKILL.md", "notes.md"), BREAD.removesuffix("/SKILL.md"), "file:///etc/passwd",
            )  # fmt: skip
            unread = (BREAD.replace("SKILL.md", "../bees/SKILL.md"), BREAD + "/", "http://localhost/")
            for asked in (
                *(ask(client, GetSkill(params=UriParams(uri=uri))) for uri in unknown),
                *(client.read_resource(uri) for uri in unread),
                ask(client, ReadDirectory(params=UriParams(uri=BREAD))),
                ask(client, ListSkills(params=types.PaginatedRequestParams(cursor="%%%"))),
            ):
                with pytest.raises(MCPError) as refused:
                    await asked
                assert refused.value.code == types.INVALID_PARAMS
            (script,) = (await client.read_resource(BREAD.replace("SKILL.md", "scripts/knead.sh"))).contents
            assert isinstance(script, types.TextResourceContents)
            assert (script.text.encode(), script.meta is not None) == (PIPED, True)
            old = "skill://local+market+old+bees/old%20bees/logo.png"
            (logo,) = (await client.read_resource(old)).contents
            assert isinstance(logo, types.BlobResourceContents)
            assert (base64.b64decode(logo.blob), logo.mime_type) == (LOGO, "image/png")

    asyncio.run(walk())


def test_all_definitions_together_are_short(minilm: OnnxEncoder) -> None:
    told = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tool_definitions()]
    (tokens,) = minilm.count([json.dumps(told, separators=(",", ":"))])
    assert tokens <= 1500
    assert len(told) == len(TOOLS)
    for tool in told:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
