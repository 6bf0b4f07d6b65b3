from __future__ import annotations

import polars as pl
import pytest

from storage.parquet import read_frame
from storage.schemas import LISTINGS
from storage.state import repositories_table
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.populate import populate
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World


def short_pages(world: World, repositories: int, skills: int) -> None:
    """Fill a marketplace that gives 20 rows a page."""
    world.skillsmp.most_rows = 20
    populate(world, repositories, skills)


# What is taken, and from where


def test_what_is_listed_is_fetched_by_repository_with_one_archive_and_an_unchanged_list_costs_its_first_pages(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    report = crawler.crawl()
    assert (report.state, report.listed, report.new, report.failed) == ("complete", 5, 5, {})
    held = crawler.held()
    assert sorted(held) == [f"ann/garden/beds/{n}" for n in ("basil", "chard", "dill", "endive", "fennel")]
    assert held["ann/garden/beds/dill"] == grows("dill")
    assert market.count(kind="archive") == 1
    assert report.requests == len(market.requests)
    rows = pl.concat(read_frame(crawler.root, f, LISTINGS) for f in crawler.root.files("raw/listings"))
    assert (rows.height, rows["updated_at"].null_count()) == (5, 0)  # as the marketplace said it
    assert rows["description"].to_list().count("Grows dill.") == 1
    market.clear_requests()
    report = crawler.crawl()
    assert {r.kind for r in market.requests} == {"listing"}
    assert (report.new, report.changed, report.unchanged) == (0, 0, 5)


def test_single_files_are_fetched_where_few_are_needed(
    world: World, crawler: Crawler, market: Marketplace
) -> None:
    world.repository("bo/herbs").commit({"mint/SKILL.md": grows("mint"), "mint/cut.py": b"print('snip')\n"})
    crawler.crawl()
    assert sorted(crawler.held()) == ["bo/herbs/mint"]
    assert (market.count(kind="archive"), market.count(kind="raw")) == (0, 2)


def test_only_what_is_listed_is_taken(world: World, garden: Repository, crawler: Crawler) -> None:
    world.unlist(next(row for row in world.rows if row.folder == "beds/dill"))
    assert crawler.crawl().listed == 4
    assert "ann/garden/beds/dill" not in crawler.held()


def test_a_ref_with_a_slash_is_told_from_a_folder_by_the_repositorys_refs(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.lists_new_skills = False
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it late.")}, branch="feature/late")
    world.list_skill(garden, "beds/dill", ref="feature/late")
    crawler.crawl()
    assert crawler.held()["ann/garden/beds/dill"] in (grows("dill"), grows("dill", "Sow it late."))
    seen = {row["repository"] for row in _repositories(crawler)}
    assert seen == {"ann/garden"}
    assert {row["ref"] for row in _repositories(crawler)} == {"main", "feature"}


def test_a_branch_that_is_gone_stands_for_the_default_branch(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.rows.clear()
    garden.branch("trunk")
    world.list_skill(garden, "beds/dill", ref="trunk")
    garden.drop_branch("trunk")
    report = crawler.crawl()
    assert (report.failed, sorted(crawler.held())) == ({}, ["ann/garden/beds/dill"])


def test_what_is_listed_twice_or_nowhere_is_counted_with_its_reason(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.list_skill(garden, "beds/absent")
    world.list_skill(garden, "beds/dill", url="https://gitlab.example/ann/garden/tree/main/beds/dill")
    world.list_skill(None, "x", url="")
    report = crawler.crawl()
    assert report.failed == {"not-found": 1, "unsupported-url": 1, "no-url": 1}
    assert report.new == 5


# The second night


def test_only_repositories_that_changed_are_looked_at(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    populate(world, repositories=12, skills=40)
    crawler.crawl()
    market.clear_requests()
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    report = crawler.crawl()
    assert {r.repository for r in market.requests if r.repository} == {"ann/garden"}
    assert (report.new, report.changed, report.retired) == (0, 1, 0)
    assert crawler.held()["ann/garden/beds/dill"] == grows("dill", "Sow it in May.")


def test_a_repository_that_its_list_forgot_is_looked_at_again_after_a_while(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=6)
    world.lists_new_skills = False
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    assert crawler.crawl(days=2).changed == 0
    assert crawler.crawl().changed == 1


def test_a_row_that_comes_late_with_an_old_date_is_met_when_the_list_is_walked_whole_again(
    world: World, crawler: Crawler
) -> None:
    short_pages(world, repositories=6, skills=45)
    crawler.crawl()
    world.lists_new_skills = False
    late = world.repository("cy/late")
    late.commit({"sage/SKILL.md": grows("sage")})
    world.list_skill(late, "sage", updated_at=min(row.updated_at for row in world.rows) - 60)
    assert crawler.crawl(days=7).new == 0
    assert crawler.crawl().new == 1


def test_a_commit_that_leaves_skills_as_they_are_fetches_none_of_them(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=8)
    garden.commit({"README.md": b"A garden.\n"})
    market.clear_requests()
    assert crawler.crawl().unchanged == 5
    assert market.count(kind="tree") == 1
    assert market.count(kind="archive") + market.count(kind="raw") == 0


# Rows that move while they are read


@pytest.mark.slow
def test_rows_inserted_while_paging_and_a_short_last_page_lose_nothing_and_double_nothing(
    world: World, crawler: Crawler
) -> None:
    short_pages(world, repositories=12, skills=70)
    late = world.repository("cy/late")

    def insert(page: int) -> None:
        if page in (2, 3):
            late.commit({f"new-{page}/SKILL.md": grows(f"sprout-{page}")})

    world.skillsmp.before_page = insert
    report = crawler.crawl()
    assert report.state == "complete"
    assert report.failed == {}
    assert {"cy/late/new-2", "cy/late/new-3"} <= set(crawler.held())
    assert len(crawler.held()) == report.new == len(world.rows)


# Quotas


def test_when_the_days_quota_ends_the_next_day_goes_on_where_it_was(
    world: World, market: Marketplace, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_pages(world, repositories=12, skills=90)
    monkeypatch.setenv("SKILLERY_SKILLSMP_KEY", "sk-1")
    world.skillsmp.key_quota = (3, 30)
    first = crawler.crawl()
    assert (first.state, first.new, first.quota_left) == ("partial", 60, 0)
    assert first.failed == {"quota": 1}
    same_day = crawler.crawl(days=0)
    assert (same_day.state, same_day.new) == ("partial", 0)


def test_a_limit_takes_the_newest_rows_and_leaves_the_cursor_alone(world: World, crawler: Crawler) -> None:
    short_pages(world, repositories=10, skills=30)
    report = crawler.crawl(limit=7)
    assert (report.state, report.listed) == ("limited", 7)
    assert crawler.crawl().new == 23


def test_a_limit_that_rows_without_a_skill_used_up_is_not_the_whole_list(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.list_skill(garden, "beds/absent")
    report = crawler.crawl(limit=3)
    assert (report.state, report.listed, report.failed) == ("limited", 2, {"not-found": 1})


def test_a_marketplace_that_shows_only_a_part_is_swept_by_keywords(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    short_pages(world, repositories=12, skills=70)
    world.skillsmp.listing_depth = 40
    first = crawler.crawl()
    assert first.state == "complete"
    assert any("search" in r.query for r in market.requests)
    assert first.listed >= 40


def test_a_query_is_not_swept_by_keywords(world: World, market: Marketplace, crawler: Crawler) -> None:
    for number in range(24):
        world.repository(f"bo/herbs-{number}").commit({"mint/SKILL.md": grows("mint")})
    world.skillsmp.most_rows = world.skillsmp.listing_depth = 20
    crawler.crawl("skillsmp:mint")
    crawler.crawl("skillsmp:mint")
    assert {r.query.get("search") for r in market.requests if r.kind == "listing"} == {"mint"}


def _repositories(crawler: Crawler) -> list[dict[str, object]]:
    return repositories_table(crawler.root).read().to_dicts()
