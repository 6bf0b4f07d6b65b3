"""Pages of the marketplace's list by either endpoint, and their rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.root import Root
from storage.schemas import DROPPED, LISTINGS, Dropped, Listing, to_frame
from tasks.crawl.http.client import open_http
from tasks.crawl.http.responses import Answer, HttpFailed, HttpTerminal, HttpTransient, QuotaExhausted
from tasks.crawl.http.settings import Secret
from tasks.crawl.skillsmp.api import ListingPage, SkillsMP, listing_of, unwrap
from tasks.crawl.skillsmp.source import SWEEP_KEYWORDS
from tasks.models.fields import count_of, time_of
from tests.support.crawl.crawling import settings_of
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

Endpoint: TypeAlias = Literal["listing", "search"]
Envelope: TypeAlias = Literal["nested", "flat", "bare"]
Promise: TypeAlias = Literal["honest", "always", "never"]
KEY = "sk_live_orchard"
Ask = Callable[..., list[ListingPage]]


def fill(world: World, count: int) -> None:
    repository = world.repository("ann/orchard")
    repository.commit({"README.md": b"Trees"})
    for n in range(count):
        name = f"graft-{n:03}"
        world.list_skill(
            repository, f"skills/{name}", name=name, description="Grafts trees", updated_at=1_772_000_000 + n
        )


@pytest.fixture
def market() -> Iterator[Marketplace]:
    world = World()
    fill(world, 25)
    with Marketplace(world) as served:
        yield served


@pytest.fixture
def ask(market: Marketplace, tmp_path: Path) -> Ask:
    """Ask one client for pages, in turn."""

    def pages(*numbers: int, query: str | None = None, key: str = "", limit: int = 10) -> list[ListingPage]:
        async def run() -> list[ListingPage]:
            async with open_http(settings_of({}), Root(tmp_path)) as http:
                client = SkillsMP(http, market.url("skillsmp"), Secret(key))
                return [await client.page(query, n, limit=limit) for n in numbers]

        return asyncio.run(run())

    return pages


def names(page: ListingPage) -> list[str]:
    return [row.name or "" for row in page.rows if isinstance(row, Listing)]


def kinds(market: Marketplace) -> list[str | None]:
    return [request.kind for request in market.requests]


def test_the_sites_listing_is_asked_and_with_a_key_the_search(market: Marketplace, ask: Ask) -> None:
    for key in ("", KEY):
        assert names(ask(1, key=key)[0]) == [f"graft-{n:03}" for n in range(24, 14, -1)]
        assert names(ask(1, query=" graft-007 ", key=key)[0]) == ["graft-007"]
    assert kinds(market) == ["listing", "listing", "search", "search"]
    assert market.requests[0].query == {"page": "1", "limit": "10", "sortBy": "recent"}
    assert market.requests[2].query["q"] == "*"
    assert market.requests[2].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("way", ["missing", "html_wall"])
@pytest.mark.parametrize(("key", "first"), [("", "listing"), (KEY, "search")])
def test_a_way_that_is_not_served_or_blocked_is_left_for_the_other_at_once_and_for_good(
    market: Marketplace, ask: Ask, way: str, key: str, first: Endpoint
) -> None:
    setattr(market.world.skillsmp, way, frozenset({first}))
    pages = ask(1, 2, key=key)
    other = "search" if first == "listing" else "listing"
    assert [names(page)[0] for page in pages] == ["graft-024", "graft-014"]
    asked = ["search" if "v1" in request.path else "listing" for request in market.requests]
    assert asked == [first, other, other]
    sent = [KEY in request.headers.get("authorization", "") for request in market.requests]
    assert sent == [bool(key) and way == "search" for way in asked]  # the key is sent to the search only


def test_a_search_that_wants_a_key_is_passed_over_by_who_has_none(market: Marketplace, ask: Ask) -> None:
    market.world.skillsmp.key_required = True
    market.world.skillsmp.html_wall = frozenset({"listing"})
    with pytest.raises(HttpTerminal, match="SKILLERY_SKILLSMP_KEY") as caught:
        ask(1)
    assert caught.value.reason == "html"
    assert len(market.requests) == 2


def test_a_wrong_key_ends_it_at_once(market: Marketplace, ask: Ask) -> None:
    market.world.skillsmp.keys = frozenset({"another"})
    with pytest.raises(HttpTerminal) as caught:
        ask(1, key=KEY)
    assert caught.value.reason == "unauthorised"
    assert len(market.requests) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [200, 403])
def test_pages_for_people_both_ways_mean_it_is_blocked(market: Marketplace, ask: Ask, status: int) -> None:
    market.world.skillsmp.html_wall = frozenset({"listing", "search"})
    market.world.skillsmp.html_status = status
    with pytest.raises(HttpTerminal, match="blocked") as caught:
        ask(1)
    assert caught.value.reason == "html"
    assert len(market.requests) == 2


def test_the_end_of_the_days_quota_is_told(market: Marketplace, ask: Ask) -> None:
    market.world.skillsmp.key_quota = (1, 30)
    with pytest.raises(QuotaExhausted):
        ask(1, 2, key=KEY)


@pytest.mark.parametrize("envelope", ["nested", "flat", "bare"])
def test_every_envelope_holds_the_same_page(market: Marketplace, ask: Ask, envelope: Envelope) -> None:
    market.world.skillsmp.search_envelope = envelope
    page = ask(2, key=KEY)[0]
    assert (names(page)[0], page.total, page.has_next, len(page.rows)) == ("graft-014", 25, True, 10)


@pytest.mark.parametrize("has_next", ["honest", "always", "never"])
def test_full_pages_and_promises_are_followed(market: Marketplace, ask: Ask, has_next: Promise) -> None:
    market.world.skillsmp.has_next = has_next
    pages = ask(1, 2, 3, 4)
    assert [len(page.rows) for page in pages] == [10, 10, 5, 0]
    assert [page.has_next for page in pages] == [True, True, has_next == "always", False]
    assert not any(page.capped for page in pages)


def test_a_listing_that_ends_below_its_own_count_is_capped(market: Marketplace, ask: Ask) -> None:
    market.world.skillsmp.listing_depth = 15
    pages = ask(1, 2, 3)
    assert [(len(page.rows), page.capped) for page in pages] == [(10, False), (5, True), (0, True)]
    market.world.skillsmp.listing_depth = None  # a page that the server made shorter than asked is full
    market.world.skillsmp.most_rows, market.world.skillsmp.has_next = 4, "never"
    assert [(len(page.rows), page.has_next) for page in ask(1, 7)] == [(4, True), (1, False)]


def test_rows_in_every_form_are_listings_or_reasons(market: Marketplace, ask: Ask) -> None:
    settings = market.world.skillsmp
    settings.listing_times, settings.nulls_every, settings.routes = "rotating", 3, True
    settings.written_stars_every, settings.no_url_every = 4, 5
    rows = ask(1, limit=100)[0].rows
    assert sum(isinstance(row, Dropped) and row.reason == "no-url" for row in rows) == 5
    listed = [row for row in rows if isinstance(row, Listing)]
    assert len(listed) == 20
    whole = [int(row.updated_at.timestamp()) for row in listed if row.updated_at]
    assert whole == sorted(whole, reverse=True)
    assert len(whole) == 20


def answer(body: object) -> Answer:
    return Answer("http://127.0.0.1/api/skills", 200, {}, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("MISSING_API_KEY", HttpTerminal, "unauthorised"),
        ("INVALID_API_KEY", HttpTerminal, "unauthorised"), ("MISSING_QUERY", HttpTerminal, "refused"),
        ("DAILY_QUOTA_EXCEEDED", QuotaExhausted, "quota"), ("INTERNAL_ERROR", HttpTransient, "server"),
        (None, HttpTerminal, "refused"),
    ],
)  # fmt: skip
def test_an_error_with_status_200_has_its_type(code: str | None, kind: type[HttpFailed], reason: str) -> None:
    with pytest.raises(kind) as caught:
        unwrap(answer({"success": False, "error": {"code": code, "message": "no"}}))
    assert caught.value.reason == reason


def test_json_that_is_no_listing_is_an_error_and_not_an_empty_page() -> None:
    for body in ([], "rows", None, {}, {"skills": {}}, {"data": {"rows": []}}, {"data": 3}):
        with pytest.raises(HttpTerminal, match="no list of skills"):
            unwrap(answer(body))


def test_keywords_are_distinct_and_can_all_be_asked_for() -> None:
    words = SWEEP_KEYWORDS
    assert len(words) == len(set(words)) > 200
    assert all(word == word.strip().lower() and word.isalnum() for word in words)


SOURCE = "skillsmp"
ROW: dict[str, Any] = {
    "id": "ada-tools-skills-sort-skill-md", "name": "sort", "author": "ada",
    "description": "Sorts lists.\n列を並べ替える", "stars": 41, "forks": 3, "updatedAt": "1772000000",
    "githubUrl": "https://github.com/ada/Tools/tree/trunk/skills/sort", "branch": "main", "path": "SKILL.md",
}  # fmt: skip
MOMENT = datetime.fromtimestamp(1_772_000_000, UTC)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
# Half of a surrogate pair too: JSON may write one as an escape.
texts = st.text(st.characters(categories=("L", "N", "P", "Z", "C", "S")), max_size=20)


def listed(**fields: object) -> Listing:
    row = listing_of(ROW | fields, SOURCE)
    assert isinstance(row, Listing)
    return row


def dropped(record: object) -> Dropped:
    row = listing_of(record, SOURCE)
    assert isinstance(row, Dropped)
    return row


def test_a_row_of_the_sites_listing_keeps_what_it_says() -> None:
    assert listed() == Listing(
        source=SOURCE, source_id="ada-tools-skills-sort-skill-md", name="sort",
        description="Sorts lists.\n列を並べ替える", author="ada",
        url="https://github.com/ada/Tools/tree/trunk/skills/sort", stars=41, updated_at=MOMENT,
    )  # fmt: skip
    route = {"ownerSlug": "ada", "repoSlug": "tools", "sourceSkillPath": "elsewhere/SKILL.md"}
    assert listed(branch="other", path="x/SKILL.md", route=route) == listed()
    assert listed(githubUrl="https://ada:s3cret@github.com/ada/Tools").url == "https://github.com/ada/Tools"


@pytest.mark.parametrize(
    "value",
    [
        "1772000000", 1772000000, 1772000000.0, "1772000000.0", 1772000000000, "1772000000000",
        "2026-02-25T06:13:20Z", "2026-02-25T06:13:20", "2026-02-25T07:13:20+01:00",
        " 2026-02-25 06:13:20+00:00 ",
    ],
)  # fmt: skip
def test_every_form_of_a_time_is_the_same_moment(value: object) -> None:
    assert time_of(value) == MOMENT


@pytest.mark.parametrize(
    "value",
    [
        None, "", "yesterday", True, 0, "0", -5, float("nan"), "inf", 10**400, 1e300, {}, [1],
        "0001-01-01T00:00+09:00",
    ],
)  # fmt: skip
def test_a_time_that_cannot_be_told_is_unknown(value: object) -> None:
    assert time_of(value) is None


@pytest.mark.parametrize(
    ("value", "stars"),
    [
        (0, 0), (1241, 1241), ("1241", 1241), ("1,241", 1241), ("137.1k", 137_100), ("1.2M", 1_200_000),
        (12.0, 12), (None, None), ("many", None), ("-3", None), (-3, None), (True, None),
        (float("inf"), None), (10**400, None), (2**63, None), ([5], None),
    ],
)  # fmt: skip
def test_stars_are_a_count_or_unknown(value: object, stars: int | None) -> None:
    assert count_of(value) == stars


def test_null_and_missing_fields_are_unknown() -> None:
    row = listed(description=None, author=None, stars=None, updatedAt=None, name="  ")
    assert (row.description, row.author, row.stars, row.updated_at, row.name) == (None,) * 5
    bare = listing_of({"githubUrl": ROW["githubUrl"]}, SOURCE)
    assert isinstance(bare, Listing)
    assert bare.source_id == bare.url == ROW["githubUrl"]


def test_tags_and_category_are_taken_where_they_are_texts() -> None:
    row = listed(tags=["lists", "", None, {"x": 1}, "sorting"], category="data")
    assert (row.tags, row.category) == (("lists", "sorting"), "data")
    assert listed(tags="lists", category=["data"]).tags == ()


@pytest.mark.parametrize("url", ["", "   ", None, [], {}])
def test_a_row_without_a_url_is_dropped_by_its_id(url: object) -> None:
    row = dropped(ROW | {"githubUrl": url})
    assert (row.doc_id, row.reason) == (ROW["id"], "no-url")
    assert "sort" in row.detail


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "null"), (["row"], "a list"), ("row", "text"), (7, "a number"),
        ({"name": "sort"}, "sort lacks id and githubUrl"), ({}, "lacks id and githubUrl"),
    ],
)  # fmt: skip
def test_what_is_no_row_is_dropped_with_what_it_lacks(record: object, said: str) -> None:
    row = dropped(record)
    assert row.reason == "malformed"
    assert said in row.detail


ROWS = st.fixed_dictionaries({}, optional=dict.fromkeys((*ROW, "tags", "category"), json_values | texts))


@given(ROWS | json_values)
def test_a_row_of_any_values_can_be_written_down(record: object) -> None:
    row = listing_of(record, SOURCE)
    schema = LISTINGS if isinstance(row, Listing) else DROPPED
    assert to_frame([row], schema).write_ndjson()
