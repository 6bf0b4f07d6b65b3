from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.root import Root
from storage.schemas import Dropped, Listing
from tasks.crawl.http.client import open_http
from tasks.crawl.http.settings import Secret
from tasks.crawl.skillsmp.api import ListingPage, SkillsMP
from tasks.crawl.skillsmp.listing import walk
from tests.support.crawl.crawling import settings_of
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import Row, World

SIZE = 5
START = datetime(2026, 3, 1, tzinfo=UTC)


class Listed:
    """A marketplace's list that a test changes between two pages, and walks through it."""

    def __init__(self, market: Marketplace, root: Root, count: int) -> None:
        self.market, self.root, self.world = market, root, market.world
        self.repository = self.world.repository("ann/orchard")
        self.repository.commit({"README.md": b"Trees"})
        self.rows = [self.add(n) for n in range(count)]

    def add(self, age: int, name: str | None = None) -> Row:
        """List a skill that was updated so many minutes before START."""
        name = name or f"graft-{age:03}"
        at = int((START - timedelta(minutes=age)).timestamp())
        return self.world.list_skill(self.repository, f"skills/{name}", name=name, updated_at=at)

    def refill(self, count: int) -> list[str]:
        """Begin anew with so many rows; return their names."""
        self.world.skillsmp.before_page = None
        self.world.rows.clear()
        self.rows = [self.add(n) for n in range(count)]
        return [row.name for row in self.rows]

    def walk(
        self, start: int = 1, *, until: datetime | None = None, after: datetime | None = None
    ) -> list[ListingPage]:
        self.market.clear_requests()

        async def run() -> list[ListingPage]:
            async with open_http(settings_of({}), self.root) as http:
                client = SkillsMP(http, self.market.url("skillsmp"), Secret())
                pages = walk(client, None, start, until=until, after=after, limit=SIZE)
                return [page async for page in pages]

        return asyncio.run(run())

    def asked(self) -> list[int]:
        return [int(request.query["page"]) for request in self.market.requests]


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Listed]:
    with Marketplace(World()) as market:
        yield Listed(market, Root(tmp_path), 23)


def names(pages: list[ListingPage]) -> list[str]:
    return [row.name or "" for page in pages for row in page.rows if isinstance(row, Listing)]


def of_age(*ages: int) -> list[str]:
    return [f"graft-{age:03}" for age in ages]


def test_a_list_that_stands_still_is_read_once_a_page_to_its_short_end(listed: Listed) -> None:
    pages = listed.walk()
    assert names(pages) == of_age(*range(23))
    assert listed.asked() == [1, 2, 3, 4, 5]
    assert [page.has_next for page in pages] == [True, True, True, True, False]
    listed.walk(until=START)  # nothing new costs two pages
    assert listed.asked() == [1, 2]
    for row in listed.rows[4:18]:
        row.updated_at = listed.rows[4].updated_at
    listed.walk()  # rows of one age, all of which were met: no others are looked for
    assert listed.asked() == [1, 2, 3, 4, 5]


def test_rows_of_one_age_in_another_order_on_every_page_are_met_all_the_same(listed: Listed) -> None:
    for row in listed.rows[4:18]:
        row.updated_at = listed.rows[4].updated_at
    # Seconds that differ from request to request order the rows of one age.
    ticks = iter(range(10_000))
    listed.world.now = lambda: next(ticks)
    listed.world.skillsmp.unstable_ties = True
    found = names(listed.walk())
    assert sorted(found) == of_age(*range(23))


def test_the_walk_ends_at_the_watermark_and_rows_as_old_as_it_are_read(listed: Listed) -> None:
    until = START - timedelta(minutes=7)
    for n in range(4):
        listed.add(7, f"tied-{n}")
    found = names(listed.walk(until=until))
    assert set(found) >= {*of_age(*range(8)), *(f"tied-{n}" for n in range(4))}
    # Rows 0 to 11 are new or as old; the fourth page is the first with older rows only.
    assert listed.asked() == [1, 2, 3, 4]


def test_rows_of_unknown_age_neither_end_the_walk_nor_keep_it_going(listed: Listed) -> None:
    for row in listed.rows[:6]:
        row.updated_at = 0
    listed.world.rows.sort(key=lambda row: row.updated_at != 0)
    listed.walk(until=START - timedelta(minutes=100))
    assert len(listed.asked()) == 5
    listed.rows[22].updated_at = 0
    listed.walk(until=START + timedelta(minutes=1))
    assert listed.asked() == [1]


def test_a_server_that_promises_more_for_ever_is_left_at_an_empty_page(listed: Listed) -> None:
    listed.world.skillsmp.has_next = "always"
    assert names(listed.walk()) == of_age(*range(23))
    assert listed.asked() == [1, 2, 3, 4, 5, 6]
    listed.world.skillsmp.no_url_every = 1  # rows without identity do not hide each other
    rows = [row for page in listed.walk() for row in page.rows]
    assert sum(isinstance(row, Dropped) and row.reason == "no-url" for row in rows) == 23


def test_a_walk_that_broke_off_goes_on_where_it_was_or_before_where_rows_moved_up(listed: Listed) -> None:
    after = START - timedelta(minutes=14)
    assert names(listed.walk(3, after=after)) == of_age(*range(10, 23))
    assert listed.asked() == [3, 4, 5]
    for row in listed.rows[:7]:
        listed.world.unlist(row)
    found = names(listed.walk(3, after=after))
    # Page 3 now begins with row 17: rows 15 and 16 had not been taken.
    assert set(found) >= set(of_age(*range(15, 23)))
    assert listed.asked()[:2] == [3, 2]


def test_a_server_that_repeats_its_last_page_for_ever_is_left(tmp_path: Path) -> None:
    class Stuck(SkillsMP):
        async def page(self, query: str | None, number: int, *, limit: int = SIZE) -> ListingPage:
            return replace(await super().page(query, min(number, 2), limit=limit), number=number)

    async def run(market: Marketplace) -> list[ListingPage]:
        async with open_http(settings_of({}), Root(tmp_path)) as http:
            client = Stuck(http, market.url("skillsmp"), Secret())
            return [page async for page in walk(client, limit=SIZE)]

    with Marketplace(World()) as market:
        Listed(market, Root(tmp_path), 10)
        assert names(asyncio.run(run(market))) == of_age(*range(10))


def test_rows_inserted_while_paging_are_met_before_the_walk_ends(listed: Listed) -> None:
    fresh = {2: "fresh-2", 3: "fresh-3"}

    def insert(asked: int) -> None:
        if name := fresh.pop(asked, None):
            listed.add(-asked, name)

    listed.world.skillsmp.before_page = insert
    found = names(listed.walk(until=START - timedelta(minutes=12)))
    assert set(found) >= {"fresh-2", "fresh-3", *of_age(*range(13))}


inserted = st.dictionaries(st.integers(1, 6), st.integers(0, 7), max_size=4)
removed = st.dictionaries(st.integers(2, 5), st.integers(0, 7), max_size=3)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 24), inserted=inserted)
def test_whatever_is_inserted_while_paging_nothing_is_lost_and_nothing_comes_twice(
    listed: Listed, count: int, inserted: dict[int, int]
) -> None:
    old, left = listed.refill(count), dict(inserted)

    def insert(asked: int) -> None:
        for _ in range(left.pop(asked, 0)):
            listed.add(-len(listed.world.rows), f"fresh-{len(listed.world.rows):03}")

    listed.world.skillsmp.before_page = insert
    found = names(listed.walk())
    assert len(found) == len(set(found))
    assert set(found) >= set(old)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 24), removed=removed, seed=st.randoms(use_true_random=False))
def test_whatever_is_removed_while_paging_what_stays_is_met_once(
    listed: Listed, count: int, removed: dict[int, int], seed: Random
) -> None:
    listed.refill(count)
    left = dict(removed)

    def remove(asked: int) -> None:
        for _ in range(min(left.pop(asked, 0), len(listed.world.rows))):
            listed.world.unlist(seed.choice(listed.world.rows))

    listed.world.skillsmp.before_page = remove
    found = names(listed.walk())
    assert len(found) == len(set(found))
    assert set(found) >= {row.name for row in listed.world.rows}
