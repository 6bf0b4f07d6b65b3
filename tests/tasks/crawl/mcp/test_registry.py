"""The registry of MCP servers: its pages, changes and rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DROPPED, LISTINGS, RAW_DOCUMENTS, Dropped, Listing, RawDocument, to_frame
from storage.state import seen_table
from tasks.crawl.collect import SourceReport
from tasks.crawl.mcp.registry import FULL_DAYS, items_of
from tasks.crawl.source.base import CrawlContext, Gone, Item, Source
from tasks.crawl.sources import open_source
from tests.support.crawl.crawling import Crawler, settings_of
from tests.support.marketplace.listings import Registry
from tests.support.marketplace.messages import Fault, Faults
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

OFFICIAL = "io.modelcontextprotocol.registry/official"
SERVER: dict[str, Any] = {
    "name": "io.github.ann/kettle",
    "description": "Boils water",
    "version": "1.2.0",
    "repository": {
        "url": "https://ann:s3cret@github.com/ann/kettle", "source": "github", "id": "4711",
        "subfolder": "mcp",
    },
    "packages": [{"identifier": "kettle"}],
}  # fmt: skip


def register(world: World, *numbers: int) -> None:
    for n in numbers:
        world.register(f"io.github.ann/kettle-{n:03}", description=f"Boils {n} litres")


def night(crawler: Crawler, market: Marketplace, days: int = 1, limit: int | None = None) -> SourceReport:
    """Read the registry; then days pass, for it too."""
    market.clear_requests()
    report = crawler.crawl("mcp-registry", limit, days)
    market.world.time = int(crawler.now.timestamp())
    return report


def asked(market: Marketplace, parameter: str) -> list[str | None]:
    return [request.query.get(parameter) for request in market.requests]


def known(crawler: Crawler) -> list[str]:
    return sorted(name.removeprefix("mcp/io.github.ann/") for name in crawler.held())


@pytest.mark.parametrize(
    ("key", "last"), [("nextCursor", "null"), ("next_cursor", "empty"), ("nextCursor", "absent")]
)
def test_all_pages_are_read_however_the_cursor_is_written(
    world: World, market: Marketplace, crawler: Crawler,
    key: Literal["nextCursor", "next_cursor"], last: Literal["null", "empty", "absent"],
) -> None:  # fmt: skip
    world.registry.cursor_key, world.registry.last_cursor = key, last
    register(world, *range(230))
    report = night(crawler, market)
    assert (report.state, report.new, report.requests) == ("complete", 230, 3)
    after = [f"io.github.ann/kettle-{number}:1.0.0" for number in ("099", "199")]
    assert asked(market, "cursor") == [None, *after]
    assert set(asked(market, "limit")) == {"100"}
    assert set(asked(market, "version")) == {"latest"}


def test_the_next_night_asks_for_changes_and_says_of_the_rest_that_it_is_unchanged(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    register(world, *range(120))
    night(crawler, market, days=3)
    register(world, 7, 500)
    report = night(crawler, market, days=0)
    assert (report.state, report.new, report.unchanged) == ("complete", 1, 120)
    assert (report.retired, report.requests) == (0, 1)
    # The start of the night before, less a day: clocks differ.
    assert asked(market, "updated_since") == ["2026-05-31T02:00:00Z"]
    assert seen_table(crawler.root).read()["last_seen_at"].unique().to_list() == [crawler.now]


def test_a_new_version_changes_a_deletion_retires(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    register(world, 1, 2, 3)
    night(crawler, market, days=3)
    world.register("io.github.ann/kettle-001", version="2.0.0", description="Boils faster")
    world.unregister("io.github.ann/kettle-002")
    report = night(crawler, market, days=3)
    assert (report.changed, report.retired, report.unchanged) == (1, 1, 1)
    assert known(crawler) == ["kettle-001", "kettle-003"]
    register(world, 2)  # it comes back
    assert night(crawler, market).new == 1
    assert known(crawler) == ["kettle-001", "kettle-002", "kettle-003"]
    with Marketplace(World()) as other:  # another registry is read from its beginning
        crawler.settings = settings_of(other.environment())
        other.world.register("io.github.bob/oven")
        night(crawler, other)
        assert asked(other, "updated_since") == [None]


def test_a_whole_reading_retires_what_changes_never_told(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    register(world, 1, 2)
    night(crawler, market, days=FULL_DAYS - 1)
    world.servers.pop()
    assert night(crawler, market).retired == 0
    report = night(crawler, market)
    assert asked(market, "updated_since") == [None]
    assert (report.retired, report.unchanged) == (1, 1)


def test_a_reading_that_was_killed_goes_on_with_its_next_page(world: World, crawler: Crawler) -> None:
    def opened() -> Source:
        return open_source("mcp-registry", CrawlContext(crawler.root, crawler.now, settings=crawler.settings))

    def names(items: list[Item]) -> list[str]:
        return [item.doc_id for item in items if isinstance(item, RawDocument)]

    register(world, *range(250))
    source = opened()
    reading = source.read()
    for _ in range(2 * 100 - 1):
        next(reading)
    source.checkpoint()  # of a page that is not safe yet nothing is remembered
    assert len(names(list(opened().read()))) == 250
    source = opened()
    reading = source.read()
    # Two pages, a listing and a document each entry, and the beginning of the third.
    first = [next(reading) for _ in range(2 * 200 + 1)]
    source.checkpoint()
    rest = list(opened().read())
    assert len(names(first)) == 200
    assert names(rest) == [f"mcp/io.github.ann/kettle-{n:03}" for n in range(200, 250)]
    del reading


def test_what_came_before_a_break_is_not_retired_by_what_comes_after(
    world: World, market: Marketplace, faults: Faults, crawler: Crawler
) -> None:
    register(world, *range(150))
    faults.script("registry:*", [Fault("none"), *[Fault("500")] * 3])
    broken = night(crawler, market)
    assert (broken.state, broken.listed, broken.failed) == ("partial", 100, {"server": 1})
    world.registry.most_rows = 99  # a hundred are too many now: its cursor is refused
    assert night(crawler, market).state == "failed"
    assert asked(market, "cursor") == ["io.github.ann/kettle-099:1.0.0", None]
    world.registry.most_rows = 100
    report = night(crawler, market)
    assert (report.state, report.new, report.retired) == ("complete", 50, 0)
    assert asked(market, "cursor") == ["io.github.ann/kettle-099:1.0.0"]
    assert len(known(crawler)) == 150


def test_a_limited_reading_begins_anew_each_time(world: World, market: Marketplace, crawler: Crawler) -> None:
    register(world, *range(250))
    assert night(crawler, market, limit=130).new == 130
    report = night(crawler, market, limit=130)
    assert (report.state, report.new, report.unchanged) == ("limited", 0, 130)
    assert night(crawler, market).new == 120


def test_what_is_no_list_of_servers_fails_the_source_and_retires_nothing(
    world: World, market: Marketplace, faults: Faults, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(world, 1, 2)
    night(crawler, market)
    lacking = Fault("missing-fields", fields=("servers",))
    faults.script("registry:*", [Fault("html"), Fault("wrong-json"), lacking])
    for reason in ("html", "not-json", "shape"):
        report = night(crawler, market)
        assert (report.state, report.failed) == ("failed", {reason: 1})
    monkeypatch.setattr(Registry, "_next", lambda *_: {"nextCursor": "io.github.ann/kettle-001:1.0.0"})
    assert night(crawler, market).failed == {"shape": 1}  # the same page would come for ever
    assert known(crawler) == ["kettle-001", "kettle-002"]


def entry(*, status: str = "active", latest: bool = True, **fields: object) -> dict[str, Any]:
    official = {"status": status, "isLatest": latest, "publishedAt": "2026-03-01T00:00:00Z"}
    return {"server": SERVER | fields, "_meta": {OFFICIAL: official}}


def items(value: object) -> list[Listing | RawDocument | Gone | Dropped]:
    return list(items_of(value, "mcp-registry"))


def test_a_server_is_a_listing_and_a_document() -> None:
    listing, document = items(entry())
    assert listing == Listing(
        source="mcp-registry", source_id="io.github.ann/kettle", kind="mcp-server",
        name="io.github.ann/kettle", description="Boils water", author="io.github.ann",
        url="https://github.com/ann/kettle", repo_id="4711", updated_at=datetime(2026, 3, 1, tzinfo=UTC),
    )  # fmt: skip
    assert isinstance(document, RawDocument)
    assert (document.doc_id, document.kind) == ("mcp/io.github.ann/kettle", "mcp-server")
    assert (document.repo, document.repo_id, document.path) == ("ann/kettle", "4711", "mcp")
    assert (document.url, json.loads(document.content or b"")) == (listing.url, SERVER)
    turned = {"server": dict(reversed(SERVER.items())), "_meta": entry()["_meta"]}
    assert items(turned) == [listing, document]
    for description in (None, "", 7):
        document = items(entry(description=description))[1]
        assert isinstance(document, RawDocument)
        assert json.loads(document.content or b"")["description"] == ("7" if description == 7 else "")
    gone = Gone(("mcp/io.github.ann/kettle",), "retired", "the registry has marked it as deleted")
    assert items(entry(status="deleted")) == [gone]


@pytest.mark.parametrize("repository", [None, {}, "x", {"url": ""}, {"url": "no url"}, {"url": 5}])
def test_a_server_without_a_repository_is_a_document_all_the_same(repository: object) -> None:
    document = items(entry(repository=repository))[1]
    assert isinstance(document, RawDocument)
    assert document.repo is None


@pytest.mark.parametrize("status", ["active", "deleted"])
def test_an_older_version_says_nothing_of_the_latest(status: str) -> None:
    (found,) = items(entry(status=status, latest=False))
    assert isinstance(found, Dropped)
    assert (found.reason, found.lost_to) == ("older-version", "mcp/io.github.ann/kettle")


@pytest.mark.parametrize(
    "name",
    [
        *(None, "", 5, "kettle", "ann/", "/kettle", "../etc/passwd", "ann/..", "ann/a..b", "ann/./kettle"),
        *("ann/ket tle", "ann\\kettle/x", "ann/kettle\n", "ann/" + "k" * 200, "\ud800/kettle"),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_malformed(name: object) -> None:
    values: list[object] = [None, [], "server", {}, {"server": None}, {"server": []}, {"name": "a/b"}]
    for value in (entry(name=name), *values):  # so is an entry without a server
        (found,) = items(value)
        assert isinstance(found, Dropped)
        assert found.reason == "malformed"
        assert to_frame([found], DROPPED).height == 1


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(categories=("L", "C", "P")), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("description", "repository", "version"), values)),
    values,
)
def test_any_values_can_be_written_down(fields: dict[str, object], meta: object) -> None:
    for item in items({"server": SERVER | fields, "_meta": {OFFICIAL: meta}}):
        schemas = {Listing: LISTINGS, RawDocument: RAW_DOCUMENTS, Dropped: DROPPED}
        if not isinstance(item, Gone):
            assert to_frame([item], schemas[type(item)]).height == 1
