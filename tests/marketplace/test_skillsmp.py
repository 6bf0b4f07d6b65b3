"""The skills marketplace on loopback: envelopes, quotas, quirks and pages as they were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.marketplace.asking import Got, ask
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.settings import Envelope, HasNext, SkillsMPSettings, TimeForm
from tests.support.marketplace.world import World

LISTING, SEARCH = "/api/skills", "/api/v1/skills/search?q=*"


class Clock:
    """Seconds since 1970, that a test moves."""

    def __init__(self) -> None:
        self.at = 1_770_000_000.0

    def __call__(self) -> float:
        return self.at


def skill(name: str) -> bytes:
    return f"---\nname: {name}\ndescription: All about {name}\n---\n# {name}\n".encode()


def bake(world: World, first: int, count: int, at: int | None = None) -> None:
    names = [f"loaf-{number:03}" for number in range(first, first + count)]
    world.repository("ann/bakery").commit({f"{name}/SKILL.md": skill(name) for name in names}, at=at)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def market(clock: Clock) -> Iterator[Marketplace]:
    world = World(now=clock)
    bake(world, 0, 25)
    with Marketplace(world) as served:
        yield served


@pytest.fixture
def quirks(market: Marketplace) -> SkillsMPSettings:
    return market.world.skillsmp


def tell(market: Marketplace, path: str, **headers: str) -> Got:
    return ask(market, "skillsmp", path, **headers)


def rows(got: Got) -> list[dict[str, Any]]:
    told = got.json()
    listed: list[dict[str, Any]] = told.get("data", told)["skills"]
    return listed


def test_the_listing_comes_bare_and_the_search_wrapped(market: Marketplace) -> None:
    listing = tell(market, f"{LISTING}?page=2&limit=10&sortBy=recent").json()
    search = tell(market, f"{SEARCH}&page=2&limit=10").json()

    assert sorted(listing) == ["filters", "pagination", "skills"]
    assert search["success"] is True
    assert sorted(search["data"]) == ["pagination", "skills"]
    page = search["data"]["pagination"]
    assert page == {"page": 2, "limit": 10, "total": 25, "totalPages": 1, "hasNext": True, "hasPrev": True}
    assert listing["pagination"] == {**page, "totalIsExact": False}


def test_a_record_contradicts_itself_as_recorded(market: Marketplace) -> None:
    (record,) = rows(tell(market, f"{LISTING}?search=loaf-007"))

    assert record["id"] == "ann-bakery-loaf-007-skill-md"
    assert record["githubUrl"] == "https://github.com/ann/bakery/tree/main/loaf-007"
    assert (record["branch"], record["path"]) == ("master", "SKILL.md")
    assert record["updatedAt"] == str(market.world.rows[7].updated_at)
    assert (record["name"], record["description"]) == ("loaf-007", "All about loaf-007")


@pytest.mark.parametrize("path", [f"{LISTING}?", "/api/v1/skills/search?q=loaf&"])
def test_pages_are_cut_off_at_a_hundred_and_lie_side_by_side(market: Marketplace, path: str) -> None:
    bake(market.world, 25, 205)

    pages = [rows(tell(market, f"{path}limit=1000&page={number}")) for number in (1, 2, 3, 4)]

    assert [len(page) for page in pages] == [100, 100, 30, 0]
    assert len({record["githubUrl"] for page in pages for record in page}) == 230


def test_rows_come_newest_first_and_by_other_orders(market: Marketplace) -> None:
    bake(market.world, 25, 1, at=2_000_000_000)
    market.world.repository("zoe/oven", stars=900).commit({"a/SKILL.md": skill("aaa")}, at=5)

    def first(order: str) -> str:
        name: str = rows(tell(market, f"{LISTING}?limit=1&sortBy={order}"))[0]["name"]
        return name

    assert {first(order) for order in ("stars", "name")} == {"aaa"}
    times = [int(record["updatedAt"]) for record in rows(tell(market, f"{LISTING}?limit=100"))]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[1] == times[20] > times[-1]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("text", "100"), ("int", 100), ("float", 100.25), ("ms", 100_000), ("iso", "1970-01-01T00:01:40Z")],
)
def test_times_are_written_in_every_form(
    market: Marketplace, quirks: SkillsMPSettings, form: TimeForm, expected: object
) -> None:
    market.world.rows[0].updated_at = 100
    quirks.search_times = form

    (record,) = rows(tell(market, "/api/v1/skills/search?q=loaf-000"))

    assert record["updatedAt"] == expected
    quirks.search_times = "rotating"
    assert len({type(r["updatedAt"]) for r in rows(tell(market, f"{SEARCH}&limit=25"))}) == 3


def test_some_rows_lack_what_they_should_have(market: Marketplace, quirks: SkillsMPSettings) -> None:
    quirks.nulls_every, quirks.no_url_every, quirks.written_stars_every, quirks.routes = 5, 6, 7, True

    records = rows(tell(market, f"{SEARCH}&limit=100"))

    nulls = [r for r in records if r["description"] is None]
    assert len(nulls) == 5
    assert all(r["author"] is None and r["stars"] is None for r in nulls)
    assert 4 <= sum(r["githubUrl"] == "" for r in records) <= 5
    assert {r["stars"] for r in records} == {None, 12, "0.0k"}
    assert records[0]["route"]["sourceSkillPath"] == f"{records[0]['name']}/SKILL.md"


@pytest.mark.parametrize("path", ["/api/v1/skills/search", "/api/v1/skills/search?q="])
def test_a_search_for_nothing_is_a_mistake(market: Marketplace, path: str) -> None:
    got = tell(market, path)

    assert (got.status, got.json()["error"]["code"]) == (400, "MISSING_QUERY")


def test_an_empty_search_of_the_listing_and_other_paths_are_mistakes(market: Marketplace) -> None:
    assert tell(market, f"{LISTING}?search=").status == 400
    assert tell(market, "/api/search?q=x").status == 404


def test_a_search_finds_words_of_name_and_description(market: Marketplace) -> None:
    assert len(rows(tell(market, "/api/v1/skills/search?q=ABOUT%20loaf-01&limit=100"))) == 10
    assert rows(tell(market, "/api/v1/skills/search?q=croissant")) == []


def test_a_guard_shows_its_page_on_the_endpoints_it_guards(
    market: Marketplace, quirks: SkillsMPSettings
) -> None:
    quirks.html_wall = frozenset({"listing"})
    walled = tell(market, LISTING)
    assert (walled.status, walled.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert tell(market, SEARCH).status == 200

    quirks.html_wall, quirks.html_status = frozenset({"search"}), 200
    assert tell(market, SEARCH).body.startswith(b"<!DOCTYPE html>")
    assert tell(market, LISTING).json()["skills"]

    quirks.html_wall, quirks.missing = frozenset(), frozenset({"search"})
    assert tell(market, SEARCH).status == 404


@pytest.mark.parametrize(
    ("key_required", "key", "code"),
    [
        (False, None, None),
        (True, None, "MISSING_API_KEY"),
        (True, "right", None),
        (False, "wrong", "INVALID_API_KEY"),
    ],
)
def test_keys_are_looked_at(
    market: Marketplace, quirks: SkillsMPSettings, key_required: bool, key: str | None, code: str | None
) -> None:
    quirks.key_required, quirks.keys = key_required, frozenset({"right"})

    got = tell(market, SEARCH, **({"Authorization": f"Bearer {key}"} if key else {}))

    assert got.status == (401 if code else 200)
    assert got.json().get("error", {}).get("code") == code


def test_quotas_of_a_minute_and_a_day(market: Marketplace, quirks: SkillsMPSettings, clock: Clock) -> None:
    quirks.anonymous_quota, quirks.key_quota, quirks.retry_after = (3, 2), (500, 30), 9
    midnight = 1_770_000_000 // 86_400 * 86_400

    codes: list[tuple[int, str | None]] = []
    for second in (0, 1, 2, 61, 62, 86_400):
        clock.at = midnight + second
        got = tell(market, SEARCH)
        codes.append((got.status, got.json().get("error", {}).get("code")))

    assert codes == [
        (200, None),
        (200, None),
        (429, "RATE_LIMIT_EXCEEDED"),
        (200, None),
        (429, "DAILY_QUOTA_EXCEEDED"),
        (200, None),
    ]


def test_quotas_show_in_headers_and_differ_with_a_key(market: Marketplace, quirks: SkillsMPSettings) -> None:
    quirks.anonymous_quota, quirks.key_quota = (1, 10), (500, 30)
    tell(market, SEARCH)

    refused, keyed = tell(market, SEARCH), tell(market, SEARCH, Authorization="Bearer k")

    assert (refused.status, refused.headers["x-ratelimit-daily-remaining"]) == (429, "0")
    assert "retry-after" not in refused.headers
    assert keyed.headers["x-ratelimit-daily-limit"] == "500"
    assert keyed.headers["x-ratelimit-minute-remaining"] == "29"
    assert "x-ratelimit-daily-limit" not in tell(market, LISTING).headers


def test_a_depth_cap_ends_the_pages_below_the_total(market: Marketplace, quirks: SkillsMPSettings) -> None:
    quirks.listing_depth = 15

    pages = [tell(market, f"{LISTING}?limit=10&page={number}").json() for number in (1, 2, 3)]

    assert [len(page["skills"]) for page in pages] == [10, 5, 0]
    assert [page["pagination"]["hasNext"] for page in pages] == [True, False, False]
    assert pages[0]["pagination"]["total"] == 25


@pytest.mark.parametrize(("says", "told"), [("honest", False), ("always", True), ("never", False)])
def test_the_last_page_may_lie_about_what_follows(
    market: Marketplace, quirks: SkillsMPSettings, says: HasNext, told: bool
) -> None:
    quirks.has_next = says

    for limit, last in ((10, 3), (5, 5)):
        page = tell(market, f"{LISTING}?limit={limit}&page={last}").json()
        assert (len(page["skills"]), page["pagination"]["hasNext"]) == (5, told)


def test_a_page_in_the_middle_may_be_short(market: Marketplace) -> None:
    market.world.rows[2].hidden = True

    page = tell(market, f"{LISTING}?limit=10").json()

    assert (len(page["skills"]), page["pagination"]["hasNext"]) == (9, True)


def test_rows_that_are_inserted_between_two_pages_shift_the_second(
    market: Marketplace, quirks: SkillsMPSettings
) -> None:
    def insert(page: int) -> None:
        if page == 2:
            bake(market.world, 25, 3)

    quirks.before_page = insert

    first, second = (rows(tell(market, f"{LISTING}?limit=10&page={page}")) for page in (1, 2))

    assert [record["id"] for record in second[:3]] == [record["id"] for record in first[7:]]


def test_ties_may_change_their_order(market: Marketplace, quirks: SkillsMPSettings, clock: Clock) -> None:
    quirks.unstable_ties = True
    orders = []
    for _ in range(3):
        clock.at += 1
        orders.append([record["id"] for record in rows(tell(market, f"{LISTING}?limit=100"))])

    assert orders[0] != orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[1])


@pytest.mark.parametrize("envelope", ["nested", "flat", "bare"])
def test_the_search_has_had_three_envelopes(
    market: Marketplace, quirks: SkillsMPSettings, envelope: Envelope
) -> None:
    quirks.search_envelope = envelope

    told = tell(market, SEARCH).json()

    held = {
        "nested": lambda: told["data"]["skills"],
        "flat": lambda: told["data"],
        "bare": lambda: told["skills"],
    }
    assert len(held[envelope]()) == 20


def test_names_of_many_alphabets_and_line_breaks_come_through(market: Marketplace) -> None:
    market.world.list_skill(None, "x", name="技能", description="a\nb", updated_at=2_100_000_000)

    record = rows(tell(market, f"{LISTING}?limit=1"))[0]

    assert (record["name"], record["description"]) == ("技能", "a\nb")
