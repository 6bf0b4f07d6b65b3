"""The registry of MCP servers on loopback: cursors, versions, deletions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.marketplace.asking import ask
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(World()) as served:
        yield served


def servers(market: Marketplace, query: str = "") -> dict[str, Any]:
    got = ask(market, "registry", f"/v0.1/servers?{query}")
    assert got.status == 200
    told: dict[str, Any] = got.json()
    return told


def test_the_registry_pages_by_its_cursor(market: Marketplace) -> None:
    for number in range(5):
        market.world.register(
            f"com.example/tool-{number}", description="", repository="https://github.com/a/b"
        )
    settings = market.world.registry

    page = servers(market, "limit=3")
    cursor = page["metadata"]["nextCursor"]
    rest = servers(market, f"limit=3&cursor={cursor.replace('/', '%2F')}")

    assert cursor == "com.example/tool-2:1.0.0"
    found = [entry["server"]["name"] for entry in (*page["servers"], *rest["servers"])]
    assert found == [f"com.example/tool-{number}" for number in range(5)]
    assert rest["metadata"] == {"count": 2, "nextCursor": None}
    settings.last_cursor, settings.cursor_key = "empty", "next_cursor"
    assert servers(market)["metadata"] == {"count": 5, "next_cursor": ""}
    settings.last_cursor = "absent"
    assert servers(market)["metadata"] == {"count": 5}


def test_versions_deletions_and_changes_are_told_as_asked(market: Marketplace) -> None:
    world = market.world
    world.register("com.example/old", repository="https://github.com/a/b", repository_id="9")
    world.register("com.example/tool", version="1.0.0")
    since = datetime.fromtimestamp(world.time + 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.register("com.example/tool", version="1.1.0", remotes=[{"type": "sse"}])
    world.unregister("com.example/old")

    def names(query: str) -> list[str]:
        told = servers(market, query)["servers"]
        return [f"{entry['server']['name'][12:]} {entry['server']['version']}" for entry in told]

    assert names("") == ["tool 1.0.0", "tool 1.1.0"]
    assert names("version=latest") == ["tool 1.1.0"]
    assert names("version=latest&include_deleted=true") == ["old 1.0.0", "tool 1.1.0"]
    assert names("search=OLD&include_deleted=true") == ["old 1.0.0"]
    assert names(f"version=latest&updated_since={since}") == ["old 1.0.0", "tool 1.1.0"]
    assert names("updated_since=2030-01-01T00:00:00Z") == []
    entry = servers(market, "include_deleted=true")["servers"][0]
    assert entry["server"]["repository"] == {"url": "https://github.com/a/b", "source": "github", "id": "9"}
    official = entry["_meta"]["io.modelcontextprotocol.registry/official"]
    assert (official["status"], official["isLatest"]) == ("deleted", True)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "updated_since=then", "updated_since=2026-01-01"]
)
def test_the_registry_refuses_what_it_cannot_read(market: Marketplace, query: str) -> None:
    assert ask(market, "registry", f"/v0.1/servers?{query}").status == 400


def test_the_unstable_route_has_vanished(market: Marketplace) -> None:
    assert ask(market, "registry", "/v0/servers").status == 404
