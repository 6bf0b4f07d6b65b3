"""What becomes of skills whose repository goes, misbehaves, or cannot be reached."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storage.parquet import read_frame
from storage.schemas import RAW_DOCUMENTS
from tasks.crawl.source.identity import apart
from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.marketplace import github, malice
from tests.support.marketplace.faults import Fault, Faults
from tests.support.marketplace.populate import populate
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

# Repositories that go


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
    garden: Repository, crawler: Crawler, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    crawler.crawl(days=8)
    garden.commit({"README.md": b"A garden.\n"})
    honest = github.tree_json
    monkeypatch.setattr(github, "tree_json", lambda *a, **k: {**honest(*a, **k), **answer})
    report = crawler.crawl()
    assert (report.retired, report.failed, len(crawler.stale())) == (0, {"shape": 5}, 5)


def test_a_repository_emptied_to_the_last_file_has_lost_its_skills(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(days=8)
    garden.commit(dict.fromkeys(garden.head.files))
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
    world: World, garden: Repository, crawler: Crawler
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


# Archives that are not to be trusted


def test_what_a_refused_archive_left_stale_stays_so_while_nothing_changes(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl()
    garden.commit({f"beds/{n}/SKILL.md": grows(n, "Sold.") for n in ("basil", "chard", "dill", "endive")})
    garden.archive_override = malice.climbing()
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


# A marketplace or forge that does not answer


def test_a_repository_that_fails_all_night_leaves_its_documents_stale_and_the_run_partial(
    garden: Repository, faults: Faults, crawler: Crawler
) -> None:
    crawler.crawl()
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    faults.script("api:/repos/ann/garden*", [Fault("500")] * 20)
    report = crawler.crawl()
    assert (report.state, report.failed) == ("partial", {"server": 6})
    assert len(crawler.stale()) == 5
    faults._scripts.clear()
    report = crawler.crawl()
    assert (report.state, report.changed, crawler.stale()) == ("complete", 1, set())


def test_a_repository_that_failed_and_is_as_it_was_costs_one_request(
    garden: Repository, faults: Faults, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=8)
    faults.script("api:/repos/ann/garden*", [Fault("500")] * 20)
    crawler.crawl()
    faults._scripts.clear()
    market.clear_requests()
    assert (crawler.crawl().unchanged, crawler.stale()) == (5, set())
    assert [(r.kind, r.status) for r in market.requests if r.service != "skillsmp"] == [("commit", 304)]


def test_rows_listed_while_a_repository_failed_are_not_taken_for_known(
    world: World, garden: Repository, faults: Faults, crawler: Crawler
) -> None:
    world.lists_new_skills = False
    garden.commit({"beds/leek/SKILL.md": grows("leek")})
    crawler.crawl()
    world.list_skill(garden, "beds/leek")
    faults.script("api:/repos/ann/garden*", [Fault("500")] * 20)
    crawler.crawl()
    faults._scripts.clear()
    assert crawler.crawl().new == 1


def test_a_forge_that_tells_us_to_stop_is_not_asked_for_every_repository(
    world: World, faults: Faults, crawler: Crawler, market: Marketplace
) -> None:
    populate(world, repositories=45, skills=45)
    faults.script("api:*", [Fault("secondary")] * 10_000)
    report = crawler.crawl()
    assert (report.state, report.listed, report.new) == ("partial", 45, 0)
    assert market.count(service="api") < 200
    faults._scripts.clear()
    assert crawler.crawl().new == 45


def test_a_wrong_token_is_said_once_and_not_sent_to_every_repository(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(world, repositories=30, skills=40)
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
