"""The marketplace's list as a source, and what becomes of skills whose repository goes or misbehaves."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storage.parquet import read_frame
from storage.schemas import LISTINGS, RAW_DOCUMENTS
from storage.state import repositories_table
from tasks.crawl.source.identity import apart
from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.zip_files import climbing
from tests.support.marketplace import github
from tests.support.marketplace.messages import Fault, Faults
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World


def fill(world: World, repositories: int, skills: int, rows: int = 100) -> None:
    """Fill a marketplace that gives so many rows a page."""
    world.skillsmp.most_rows = rows
    for number in range(repositories):
        names = [f"herb-{n}" for n in range(number, skills, repositories)]
        files = {f"skills/{name}/SKILL.md": grows(name) for name in names}
        world.repository(f"bo/kit-{number}").commit(files)


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


def test_single_files_are_fetched_if_few_are_new(world: World, crawler: Crawler, market: Marketplace) -> None:
    world.repository("bo/herbs").commit({"mint/SKILL.md": grows("mint"), "mint/cut.py": b"print('snip')\n"})
    crawler.crawl()
    assert sorted(crawler.held()) == ["bo/herbs/mint"]
    assert (market.count(kind="archive"), market.count(kind="raw")) == (0, 2)


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


def test_what_is_nowhere_is_counted_with_its_reason(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.list_skill(garden, "beds/absent")
    world.list_skill(garden, "beds/dill", url="https://gitlab.example/ann/garden/tree/main/beds/dill")
    world.list_skill(None, "x", url="")
    world.unlist(next(row for row in world.rows if row.folder == "beds/basil"))
    report = crawler.crawl()
    assert report.failed == {"not-found": 1, "unsupported-url": 1, "no-url": 1}
    assert (report.new, "ann/garden/beds/basil" in crawler.held()) == (4, False)


def test_only_repositories_that_changed_are_looked_at(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    fill(world, repositories=12, skills=40)
    crawler.crawl()
    market.clear_requests()
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    report = crawler.crawl()
    assert {r.repository for r in market.requests if r.repository} == {"ann/garden"}
    assert (report.new, report.changed, report.retired) == (0, 1, 0)
    assert crawler.held()["ann/garden/beds/dill"] == grows("dill", "Sow it in May.")


def test_a_repository_that_its_list_forgot_is_looked_at_again_after_a_while(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(days=6)
    world.lists_new_skills = False
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    assert crawler.crawl(days=2).changed == 0
    assert crawler.crawl().changed == 1


def test_a_late_row_with_an_old_date_is_met_when_the_list_is_walked_whole(
    world: World, crawler: Crawler
) -> None:
    fill(world, repositories=6, skills=45, rows=20)
    crawler.crawl()
    world.lists_new_skills = False
    late = world.repository("cy/late")
    late.commit({"sage/SKILL.md": grows("sage")})
    world.list_skill(late, "sage", updated_at=min(row.updated_at for row in world.rows) - 60)
    assert crawler.crawl(days=7).new == 0
    assert crawler.crawl().new == 1


def test_a_row_from_the_future_ends_no_later_walk(world: World, crawler: Crawler) -> None:
    fill(world, repositories=2, skills=8, rows=5)
    world.rows[0].updated_at = 4_000_000_000
    crawler.crawl()
    world.lists_new_skills = False
    late = world.repository("cy/late")
    late.commit({f"sage-{n}/SKILL.md": grows(f"sage-{n}") for n in range(15)})
    for n in range(15):
        world.list_skill(late, f"sage-{n}", updated_at=int(crawler.now.timestamp()))
    assert crawler.crawl().new == 15


def test_when_the_days_quota_ends_the_next_day_goes_on_where_it_was(
    world: World, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world, repositories=12, skills=90, rows=20)
    monkeypatch.setenv("SKILLERY_SKILLSMP_KEY", "sk-1")
    world.skillsmp.key_quota = (3, 30)
    first = crawler.crawl()
    assert (first.state, first.new, first.quota_left) == ("partial", 60, 0)
    assert first.failed == {"quota": 1}
    same_day = crawler.crawl(days=0)
    assert (same_day.state, same_day.new) == ("partial", 0)


def test_a_limit_takes_the_newest_rows_and_leaves_the_cursor_alone(world: World, crawler: Crawler) -> None:
    fill(world, repositories=10, skills=30, rows=20)
    report = crawler.crawl(limit=7)
    assert (report.state, report.listed) == ("limited", 7)
    assert crawler.crawl().new == 23


def test_a_limit_may_be_used_up_by_rows_without_a_skill(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.list_skill(garden, "beds/absent")
    report = crawler.crawl(limit=3)
    assert (report.state, report.listed, report.failed) == ("limited", 2, {"not-found": 1})


def test_a_list_that_shows_a_part_is_swept_by_keywords(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    fill(world, repositories=12, skills=70, rows=20)
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


@pytest.mark.parametrize("routes", [["archive:*", "raw:*"], ["api:/repos/ann/garden/git/trees/*"]])
def test_files_or_a_tree_that_are_not_found_are_no_miss_of_its_repository(
    garden: Repository, faults: Faults, crawler: Crawler, routes: list[str]
) -> None:
    crawler.crawl()
    garden.commit({f"beds/{n}/SKILL.md": grows(n, "Sold.") for n in ("basil", "chard", "dill", "endive")})
    for route in routes:
        faults.script(route, [Fault("html", status=404)] * 100)
    reports = [crawler.crawl(days=8) for _ in range(3)]
    assert [(r.retired, r.failed) for r in reports] == [(0, {"not-fetched": 5})] * 3
    assert len(crawler.stale()) == 5


@pytest.mark.parametrize("answer", [{"tree": []}, {"sha": "0" * 40}])
def test_a_tree_that_is_not_the_one_asked_for_retires_nothing(
    garden: Repository, crawler: Crawler, market: Marketplace, monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, object],
) -> None:  # fmt: skip
    crawler.crawl(days=8)
    garden.commit({"README.md": b"A garden.\n"})
    honest = github.tree_json
    with monkeypatch.context() as lying:
        lying.setattr(github, "tree_json", lambda *a, **k: {**honest(*a, **k), **answer})
        report = crawler.crawl()
    assert (report.retired, report.failed, len(crawler.stale())) == (0, {"shape": 5}, 5)
    market.clear_requests()  # a commit that leaves skills as they are fetches none of them
    assert crawler.crawl(days=8).unchanged == 5
    assert (market.count(kind="tree"), market.count(kind="archive"), market.count(kind="raw")) == (1, 0, 0)
    garden.commit(dict.fromkeys(garden.head.files))  # to the last file
    assert crawler.crawl().retired == 5


def test_a_merged_branch_that_is_gone_leaves_its_skills_where_they_were_merged_to(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.rows.clear()
    garden.commit({"beds/leek/SKILL.md": grows("leek")}, branch="feature/late")
    world.list_skill(garden, "beds/leek", ref="feature/late")
    crawler.crawl(days=8)
    world.lists_new_skills = False
    garden.commit({"beds/leek/SKILL.md": grows("leek")})
    garden.drop_branch("feature/late")
    report = crawler.crawl()
    assert (report.unchanged, report.retired, list(crawler.held())) == (1, 0, ["ann/garden/beds/leek"])


def test_a_renamed_repository_keeps_its_documents_under_its_new_name(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(days=8)
    garden.rename("ann/allotment")
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    crawler.crawl()
    assert sorted(crawler.held()) == [
        f"ann/allotment/beds/{n}" for n in ("basil", "chard", "dill", "endive", "fennel")
    ]
    assert crawler.aliases()["ann/garden/beds/dill"] == "ann/allotment/beds/dill"


def test_a_repository_recreated_under_its_name_is_pointed_out(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(days=8)
    garden.delete()
    again = world.repository("ann/garden")
    again.commit({f"beds/{n}/SKILL.md": grows(n, "Sold out.") for n in ("basil", "chard", "dill", "endive")})
    crawler.crawl()
    # The name is not theirs: what they hold has ids of its own, and each text says so.
    kept_apart = apart("ann/garden", str(again.repo_id))
    again.commit({"beds/dill/SKILL.md": grows("dill", "Sold out for ever.")})
    crawler.crawl(days=8)
    assert sorted(crawler.held()) == [f"{kept_apart}/beds/{n}" for n in ("basil", "chard", "dill", "endive")]
    rows = pl.concat(read_frame(crawler.root, f, RAW_DOCUMENTS) for f in crawler.root.files("raw/documents"))
    dill = rows.filter(pl.col("path") == "beds/dill/SKILL.md").sort("fetched_at")
    assert dill["doc_id"].to_list() == ["ann/garden/beds/dill", *2 * [f"{kept_apart}/beds/dill"]]
    codes = [{finding["code"] for finding in found} for found in dill["findings"].to_list()]
    assert ["repository.recreated" in found for found in codes] == [False, True, True]
    assert (crawler.aliases(), crawler.crawl(days=8).unchanged) == ({}, 4)
    held = crawler.held().keys()
    assert (crawler.crawl("github:ann/garden").new, crawler.held().keys()) == (4, held)
    # Whatever the repository is called, it keeps to itself; whoever comes next does too.
    again.rename("ann/loot")
    world.repositories.remove(garden)  # no trace of it keeps the old name from leading on
    again.commit({"beds/dill/SKILL.md": grows("dill", "Sold again.")})
    crawler.crawl(days=8)
    assert crawler.aliases()[f"{kept_apart}/beds/dill"] == "ann/loot/beds/dill"
    for part in crawler.root.files("state/repositories"):
        crawler.root.delete(part)  # what is known of repositories is lost, but not whose the name was
    third = world.repository("ann/garden")
    third.commit({"beds/dill/SKILL.md": grows("dill", "Sold to the third.")})
    crawler.crawl(days=8)
    assert f"{apart('ann/garden', str(third.repo_id))}/beds/dill" in crawler.held()
    assert "ann/garden/beds/dill" not in crawler.held()


def test_what_a_refused_archive_left_stale_stays_so(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl()
    garden.commit({f"beds/{n}/SKILL.md": grows(n, "Sold.") for n in ("basil", "chard", "dill", "endive")})
    garden.archive_override = climbing()
    assert crawler.crawl().failed == {"archive-path": 5}
    report = crawler.crawl()
    assert (report.unchanged, report.failed, len(crawler.stale())) == (0, {"refused": 5}, 5)


def test_a_repository_over_the_limit_is_taken_file_by_file_over_several_nights(
    garden: Repository, market: Marketplace, tmp_path: Path
) -> None:
    garden.commit({f"beds/{n}/SKILL.md": grows(f"plant-{n}") for n in range(10)})
    garden.pad_to(400_000)
    small = settings_of(market.environment(), archive_bytes=300_000, single_files=5)
    crawler = Crawler(tmp_path / "small", small)
    reports = [crawler.crawl() for _ in range(4)]
    assert [(r.new, r.unchanged, r.failed.get("budget", 0)) for r in reports] == [
        (5, 0, 10), (5, 5, 5), (5, 10, 0), (0, 15, 0),
    ]  # fmt: skip
    assert [r.failed.get("archive-too-large", 0) for r in reports] == [1, 1, 1, 0]
    assert "SKILLERY_SINGLE_FILES" in crawler.dropped()["budget"]
    assert market.count(kind="raw") == 15


def test_a_repository_that_fails_all_night_leaves_its_documents_stale_and_the_run_partial(
    world: World, garden: Repository, faults: Faults, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=8)
    faults.script("api:/repos/ann/garden*", [Fault("500")] * 20)
    crawler.crawl()
    faults._scripts.clear()
    market.clear_requests()  # one that is as it was costs a request
    assert (crawler.crawl().unchanged, crawler.stale()) == (5, set())
    assert [(r.kind, r.status) for r in market.requests if r.service != "skillsmp"] == [("commit", 304)]
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    faults.script("api:/repos/ann/garden*", [Fault("500")] * 20)
    report = crawler.crawl()
    assert (report.state, report.failed) == ("partial", {"server": 6})
    assert len(crawler.stale()) == 5
    world.lists_new_skills = False
    garden.commit({"beds/leek/SKILL.md": grows("leek")})
    world.list_skill(garden, "beds/leek")
    crawler.crawl()
    faults._scripts.clear()  # a row listed while it failed is not taken for known
    report = crawler.crawl()
    assert (report.state, report.changed, report.new, crawler.stale()) == ("complete", 1, 1, set())


def test_a_forge_that_tells_us_to_stop_is_not_asked_for_every_repository(
    world: World, faults: Faults, crawler: Crawler, market: Marketplace
) -> None:
    fill(world, repositories=45, skills=45)
    faults.script("api:*", [Fault("secondary")] * 10_000)
    report = crawler.crawl()
    assert (report.state, report.listed, report.new) == ("partial", 45, 0)
    assert market.count(service="api") < 200
    faults._scripts.clear()
    assert crawler.crawl().new == 45


def test_a_wrong_token_is_said_once_and_not_sent_to_every_repository(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world, repositories=30, skills=40)
    world.github.tokens = frozenset({"right"})
    monkeypatch.setenv("GITHUB_TOKEN", "wrong-token")
    report = crawler.crawl()
    assert (report.new, report.failed) == (0, {"unauthorised": 1})
    assert "GITHUB_TOKEN" in (report.message or "")
    assert "wrong-token" not in (report.message or "")
    assert market.count(service="api") <= 10


def test_credentials_reach_their_host_alone_and_no_file(
    garden: Repository, crawler: Crawler, market: Marketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp-garden-secret")
    monkeypatch.setenv("SKILLERY_SKILLSMP_KEY", "sk-live-garden-secret")
    crawler.crawl()
    sent = {(r.service, r.headers.get("authorization")) for r in market.requests}
    assert sent == {
        ("api", "Bearer ghp-garden-secret"),
        ("archive", None),
        ("skillsmp", "Bearer sk-live-garden-secret"),
    }
    for file in crawler.folder.rglob("*"):
        assert not file.is_file() or b"garden-secret" not in file.read_bytes(), file
