from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from storage.parquet import read_frame
from storage.schemas import DROPPED, LISTINGS
from tests.crawling import Crawler, reach_of
from tests.marketplace import malice
from tests.marketplace.faults import Fault, Faults
from tests.marketplace.populate import change, populate
from tests.marketplace.repository import Repository
from tests.marketplace.server import Marketplace
from tests.marketplace.world import World


def skill(name: str, text: str = "Water it at dawn.") -> bytes:
    return f"---\nname: {name}\ndescription: Grows {name}.\n---\n{text}\n".encode()


@pytest.fixture
def world() -> World:
    made = World()
    made.github.anonymous_limit = 100_000
    return made


@pytest.fixture
def garden(world: World) -> Repository:
    """A repository with more skills than are fetched file by file."""
    repository = world.repository("ann/garden")
    repository.commit(
        {f"beds/{n}/SKILL.md": skill(n) for n in ("basil", "chard", "dill", "endive", "fennel")}
    )
    return repository


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def market(world: World, faults: Faults) -> Iterator[Marketplace]:
    with Marketplace(world, faults) as served:
        yield served


@pytest.fixture
def crawler(market: Marketplace, tmp_path: Path) -> Crawler:
    return Crawler(tmp_path / "root", reach_of(market.environment()))


def dropped(crawler: Crawler) -> dict[str, str]:
    frames = [read_frame(crawler.root, f, DROPPED) for f in crawler.root.files("dropped")]
    return dict(pl.concat(frames).select("reason", "detail").iter_rows()) if frames else {}


# What is taken, and from where


def test_what_is_listed_is_fetched_by_repository_with_one_archive(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    report = crawler.crawl()
    assert (report.state, report.listed, report.new, report.failed) == ("complete", 5, 5, {})
    held = crawler.held()
    assert sorted(held) == [f"ann/garden/beds/{n}" for n in ("basil", "chard", "dill", "endive", "fennel")]
    assert held["ann/garden/beds/dill"] == skill("dill")
    assert market.count(kind="archive") == 1
    assert report.requests == len(market.requests)


def test_single_files_are_fetched_where_few_are_needed(
    world: World, crawler: Crawler, market: Marketplace
) -> None:
    world.repository("bo/herbs").commit({"mint/SKILL.md": skill("mint"), "mint/cut.py": b"print('snip')\n"})
    crawler.crawl()
    assert sorted(crawler.held()) == ["bo/herbs/mint"]
    assert (market.count(kind="archive"), market.count(kind="raw")) == (0, 2)


def test_only_what_is_listed_is_taken(world: World, garden: Repository, crawler: Crawler) -> None:
    world.unlist(next(row for row in world.rows if row.folder == "beds/dill"))
    assert crawler.crawl().listed == 4
    assert "ann/garden/beds/dill" not in crawler.held()


def test_the_list_is_kept_as_the_marketplace_said_it(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl()
    frames = [read_frame(crawler.root, f, LISTINGS) for f in crawler.root.files("raw/listings")]
    rows = pl.concat(frames)
    assert rows.height == 5
    assert rows["description"].to_list().count("Grows dill.") == 1
    assert rows["updated_at"].null_count() == 0


def test_a_ref_with_a_slash_is_told_from_a_folder_by_the_repositorys_refs(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    world.lists_new_skills = False
    garden.commit({"beds/dill/SKILL.md": skill("dill", "Sow it late.")}, branch="feature/late")
    world.list_skill(garden, "beds/dill", ref="feature/late")
    crawler.crawl()
    assert crawler.held()["ann/garden/beds/dill"] in (skill("dill"), skill("dill", "Sow it late."))
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


def test_an_unchanged_list_costs_its_first_pages_and_nothing_else(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl()
    market.clear_requests()
    report = crawler.crawl()
    assert {r.kind for r in market.requests} == {"listing"}
    assert (report.new, report.changed, report.unchanged) == (0, 0, 5)


def test_only_repositories_that_changed_are_looked_at(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    populate(world, repositories=12, skills=40)
    crawler.crawl()
    market.clear_requests()
    garden.commit({"beds/dill/SKILL.md": skill("dill", "Sow it in May.")})
    report = crawler.crawl()
    assert {r.repository for r in market.requests if r.repository} == {"ann/garden"}
    assert (report.new, report.changed, report.retired) == (0, 1, 0)
    assert crawler.held()["ann/garden/beds/dill"] == skill("dill", "Sow it in May.")


def test_a_repository_that_its_list_forgot_is_looked_at_again_after_a_while(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=6)
    world.lists_new_skills = False
    garden.commit({"beds/dill/SKILL.md": skill("dill", "Sow it in May.")})
    assert crawler.crawl(days=2).changed == 0
    assert crawler.crawl().changed == 1


def test_a_look_that_finds_the_same_commit_costs_one_request(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=8)
    market.clear_requests()
    assert crawler.crawl().unchanged == 5
    assert [r.status for r in market.requests if r.kind == "commit"] == [304]
    assert market.count(kind="tree") == 0


def test_a_commit_that_leaves_skills_as_they_are_fetches_none_of_them(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(days=8)
    garden.commit({"README.md": b"A garden.\n"})
    market.clear_requests()
    assert crawler.crawl().unchanged == 5
    assert market.count(kind="tree") == 1
    assert market.count(kind="archive") + market.count(kind="raw") == 0


def test_a_skill_removed_from_its_repository_is_retired(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(days=8)
    garden.commit({"beds/dill/SKILL.md": None})
    report = crawler.crawl()
    assert (report.retired, "ann/garden/beds/dill" in crawler.held()) == (1, False)


# Rows that move while they are read


def test_rows_inserted_while_paging_and_a_short_last_page_lose_nothing_and_double_nothing(
    world: World, crawler: Crawler
) -> None:
    populate(world, repositories=60, skills=350)
    late = world.repository("cy/late")

    def insert(page: int) -> None:
        if page in (2, 3):
            late.commit({f"new-{page}/SKILL.md": skill(f"sprout-{page}")})

    world.skillsmp.before_page = insert
    report = crawler.crawl()
    assert report.state == "complete"
    assert report.failed == {}
    assert {"cy/late/new-2", "cy/late/new-3"} <= set(crawler.held())
    assert len(crawler.held()) == report.new == len(world.rows)


# Repositories that go


@pytest.mark.parametrize("fate", ["delete", "make_private", "deny"])
def test_a_repository_that_cannot_be_had_is_retired_after_three_misses_over_a_week(
    garden: Repository, crawler: Crawler, fate: str
) -> None:
    crawler.crawl(days=8)
    getattr(garden, fate)()
    reports = [crawler.crawl(days=3) for _ in range(3)]
    assert [r.retired for r in reports] == [0, 0, 0]
    assert len(crawler.stale()) == 5
    assert reports[0].failed == {("denied" if fate == "deny" else "missing"): 5}
    assert [r.state for r in reports] == ["complete"] * 3
    assert crawler.crawl().retired == 5
    assert crawler.held() == {}


def test_misses_of_one_night_do_not_retire(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(days=8)
    garden.delete()
    for _ in range(5):
        crawler.crawl(days=0.01)
    assert len(crawler.held()) == 5
    garden.restore()
    report = crawler.crawl()
    assert (report.unchanged, crawler.stale()) == (5, set())


@pytest.mark.parametrize("fate", ["dmca", "block_legally"])
def test_what_is_withdrawn_by_law_goes_at_once(garden: Repository, crawler: Crawler, fate: str) -> None:
    crawler.crawl(days=8)
    getattr(garden, fate)()
    report = crawler.crawl()
    assert (report.withdrawn, report.retired, crawler.held()) == (5, 0, {})
    assert "withdrawn" in dropped(crawler)


def test_a_renamed_repository_keeps_its_documents_under_its_new_name(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(days=8)
    garden.rename("ann/allotment")
    garden.commit({"beds/dill/SKILL.md": skill("dill", "Sow it in May.")})
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
    again.commit({f"beds/{n}/SKILL.md": skill(n, "Sold out.") for n in ("basil", "chard", "dill", "endive")})
    crawler.crawl()
    assert b"Sold out" in (crawler.held()["ann/garden/beds/dill"] or b"")
    assert "repository.recreated" in _findings(crawler)


# Archives that are not to be trusted


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (malice.climbing, "archive-path"),
        (malice.absolute, "archive-path"),
        (malice.two_roots, "archive-roots"),
        (malice.damaged, "archive-damaged"),
        (malice.no_archive, "archive-damaged"),
        (malice.encrypted, "archive-encrypted"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_malicious_archive_is_refused_named_and_the_run_goes_on(
    world: World, garden: Repository, crawler: Crawler, archive: Callable[[], bytes], reason: str
) -> None:
    world.repository("bo/herbs").commit({"mint/SKILL.md": skill("mint")})
    garden.archive_override = archive()
    report = crawler.crawl()
    assert report.state == "complete"
    assert report.failed == {reason: 5}
    assert "garden" in dropped(crawler)[reason]
    assert sorted(crawler.held()) == ["bo/herbs/mint"]


def test_a_repository_over_the_limit_is_taken_file_by_file_where_that_is_enough(
    garden: Repository, market: Marketplace, tmp_path: Path
) -> None:
    garden.pad_to(400_000)
    reach = reach_of(market.environment(), archive_bytes=300_000)
    small = Crawler(tmp_path / "small", reach)
    report = small.crawl()
    assert (report.new, report.failed, len(small.held())) == (5, {"archive-too-large": 1}, 5)
    garden.commit({f"beds/{n}/SKILL.md": skill(f"plant-{n}") for n in range(40)})
    many = Crawler(tmp_path / "many", reach)
    assert many.crawl().failed == {"too-large": 45}


def test_a_body_without_end_is_cut_off_and_named(world: World, garden: Repository, crawler: Crawler) -> None:
    garden.archive_override = malice.endless()
    report = crawler.crawl()
    assert (report.state, report.new, report.failed) == ("complete", 5, {"archive-too-large": 1})
    assert "ann/garden" in dropped(crawler)["archive-too-large"]


# A marketplace or forge that does not answer


def test_transient_faults_are_got_over(world: World, faults: Faults, crawler: Crawler) -> None:
    populate(world, repositories=40, skills=120)
    faults.rate = 0.2
    report = crawler.crawl()
    assert (report.state, report.new, report.failed) == ("complete", 120, {})


def test_a_repository_that_fails_all_night_leaves_its_documents_stale_and_the_run_partial(
    garden: Repository, faults: Faults, crawler: Crawler
) -> None:
    crawler.crawl()
    garden.commit({"beds/dill/SKILL.md": skill("dill", "Sow it in May.")})
    faults.script("api:/repos/ann/garden*", [Fault("500")] * 20)
    report = crawler.crawl()
    assert (report.state, report.failed) == ("partial", {"server": 6})
    assert len(crawler.stale()) == 5
    faults._scripts.clear()
    report = crawler.crawl()
    assert (report.state, report.changed, crawler.stale()) == ("complete", 1, set())


def test_a_wall_of_html_blocks_the_source_and_touches_nothing(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl()
    world.skillsmp.html_wall = frozenset({"listing", "search"})
    market.clear_requests()
    report = crawler.crawl()
    assert (report.state, report.failed) == ("failed", {"blocked": 1})
    assert "SKILLERY_SKILLSMP_KEY" in (report.message or "")
    assert len(crawler.held()) == 5
    assert len(market.requests) <= 2


def test_a_wrong_token_is_said_once_and_not_sent_to_every_repository(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(world, repositories=30, skills=40)
    world.github.tokens = frozenset({"right"})
    monkeypatch.setenv("GITHUB_TOKEN", "wrong-token")
    report = crawler.crawl()
    assert report.state == "failed" or report.new == 0
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


# Quotas


def test_when_the_days_quota_ends_the_next_day_goes_on_where_it_was(
    world: World, market: Marketplace, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(world, repositories=60, skills=450)
    monkeypatch.setenv("SKILLERY_SKILLSMP_KEY", "sk-1")
    world.skillsmp.key_quota = (3, 30)
    first = crawler.crawl()
    assert (first.state, first.new, first.quota_left) == ("partial", 300, 0)
    assert first.failed == {"quota": 1}
    same_day = crawler.crawl(days=0)
    assert (same_day.state, same_day.new) == ("partial", 0)


def test_a_limit_takes_the_newest_rows_and_leaves_the_cursor_alone(world: World, crawler: Crawler) -> None:
    populate(world, repositories=30, skills=150)
    report = crawler.crawl(limit=7)
    assert (report.state, report.listed) == ("limited", 7)
    assert crawler.crawl().new == 143


def test_a_marketplace_that_shows_only_a_part_is_swept_by_keywords(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    populate(world, repositories=60, skills=350)
    world.skillsmp.listing_depth = 200
    first = crawler.crawl()
    assert first.state == "complete"
    assert any("search" in r.query for r in market.requests)
    assert first.listed >= 200


def test_a_change_of_a_hundredth_costs_what_changed(
    world: World, market: Marketplace, crawler: Crawler
) -> None:
    populate(world, repositories=60, skills=200)
    crawler.crawl()
    market.clear_requests()
    changed = change(world, 0.01)
    report = crawler.crawl()
    assert report.changed == len(changed)
    assert report.requests <= 2 + 6 * len(changed)


def _repositories(crawler: Crawler) -> list[dict[str, object]]:
    from storage.crawl_state import repositories_table

    return repositories_table(crawler.root).read().to_dicts()


def _findings(crawler: Crawler) -> set[str]:
    from storage.schemas import RAW_DOCUMENTS

    frames = [read_frame(crawler.root, f, RAW_DOCUMENTS) for f in crawler.root.files("raw/documents")]
    return {f["code"] for row in pl.concat(frames)["findings"].to_list() for f in row}
