"""One skill or one repository is looked at again; nothing else is touched."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from storage.errors import WrongInput
from storage.state import read_sources, seen_table
from tasks.crawl.collect import SourceReport, collect_some
from tasks.crawl.refresh import Target, open_part, sources_of, target_of
from tasks.crawl.source.base import CrawlContext
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World


def refresh(crawler: Crawler, spec: str, target: str) -> SourceReport:
    """Refresh one target in one source, then let a day pass."""
    wanted = Target(target)
    context = CrawlContext(crawler.root, crawler.now, settings=crawler.settings)
    source, covers = open_part(spec, wanted, context)
    crawler.nights += 1
    report = collect_some(source, crawler.root, covers, run_id=f"night-{crawler.nights}", now=crawler.now)
    crawler.now += timedelta(days=1)
    return report


def retired(crawler: Crawler) -> set[str]:
    rows = seen_table(crawler.root).read().to_dicts()
    return {row["doc_id"] for row in rows if row["retired_at"] is not None}


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Return a folder of skills: `local/shelf/<name>`."""
    for name in ("basil", "chard", "dill"):
        folder = tmp_path / "shelf" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_bytes(grows(name))
    return tmp_path / "shelf"


def test_a_target_is_a_document_or_all_below_a_repository() -> None:
    dill = "ann/garden/beds/dill"
    for target in ("ann/garden", "ANN/Garden", dill):
        assert Target(target).covers(dill)
    assert Target("ann/garden").covers("ann/garden")
    assert not Target("ann/garden").covers("ann/gardens/beds/dill")
    assert not any(Target(dill).covers(other) for other in (f"{dill}2", "ann/garden/beds/leek"))


def test_of_a_folder_one_skill_is_brought_others_are_as_they_were(crawler: Crawler, shelf: Path) -> None:
    crawler.crawl(f"dir:{shelf}")
    for name in ("basil", "dill"):
        (shelf / name / "SKILL.md").write_bytes(grows(name, "Water it at noon."))
    report = refresh(crawler, f"dir:{shelf}", "local/shelf/dill")
    assert (report.state, report.listed, report.changed) == ("complete", 1, 1)
    held = crawler.held()
    assert held["local/shelf/dill"] == grows("dill", "Water it at noon.")
    assert held["local/shelf/basil"] == grows("basil")
    assert crawler.crawl(f"dir:{shelf}").changed == 1


def test_a_skill_that_is_gone_is_retired_and_no_other_is(crawler: Crawler, shelf: Path) -> None:
    crawler.crawl(spec := f"dir:{shelf}")
    before = read_sources(crawler.root)[spec]
    for name in ("dill", "chard"):
        (shelf / name).rename(shelf.with_name(name))
    assert refresh(crawler, spec, "local/shelf/dill").retired == 1
    assert read_sources(crawler.root)[spec] == {**before, "version": None}, "the next reading is a whole one"
    assert (retired(crawler), crawler.stale()) == ({"local/shelf/dill"}, set())
    for name in ("dill", "chard"):
        shelf.with_name(name).rename(shelf / name)
    assert (crawler.crawl(spec).new, retired(crawler)) == (1, set())


def test_a_source_that_cannot_be_read_makes_what_was_asked_for_stale(crawler: Crawler, shelf: Path) -> None:
    crawler.crawl(f"dir:{shelf}")
    shelf.rename(shelf.with_name("away"))
    report = refresh(crawler, f"dir:{shelf}", "local/shelf/dill")
    assert (report.state, report.failed) == ("failed", {"missing": 1})
    assert crawler.stale() == {"local/shelf/dill"}
    assert retired(crawler) == set()


def test_of_a_marketplace_one_repository_is_asked_for_and_nothing_is_listed(
    world: World, garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    other = world.repository("bo/herbs")
    other.commit({"mint/SKILL.md": grows("mint")})
    crawler.crawl()
    for repository, path in ((garden, "beds/dill"), (other, "mint")):
        repository.commit({f"{path}/SKILL.md": grows("dill", "Sow it late.")})
    market.clear_requests()
    report = refresh(crawler, "skillsmp", "ann/garden/beds/dill")
    assert (report.state, report.changed, report.unchanged, report.retired) == ("complete", 1, 4, 0)
    assert all("bo/herbs" not in request.path for request in market.requests)
    assert market.count(kind="search") == 0
    assert crawler.held()["ann/garden/beds/dill"] == grows("dill", "Sow it late.")
    assert crawler.held()["bo/herbs/mint"] == grows("mint")
    garden.delete()
    refresh(crawler, "skillsmp", "ann/garden")
    assert crawler.stale() == {f"ann/garden/beds/{n}" for n in ("basil", "chard", "dill", "endive", "fennel")}
    assert retired(crawler) == set()


def test_of_a_github_repository_all_is_looked_at_for_one_skill(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl("github:ann/garden")
    late = {f"beds/{n}/SKILL.md": grows(n, "Sow it late.") for n in ("dill", "basil")}
    garden.commit({**late, "beds/fennel/SKILL.md": None})
    report = refresh(crawler, "github:ann/garden", "ann/garden/beds/dill")
    assert (report.changed, report.retired) == (2, 1)
    assert crawler.crawl("github:ann/garden").unchanged == 4


def test_the_end_of_one_id_is_a_target_what_may_mean_several_is_not(crawler: Crawler, shelf: Path) -> None:
    crawler.crawl(f"dir:{shelf}")
    assert sources_of(crawler.root, Target("LOCAL/shelf/dill")) == [f"dir:{shelf}"]
    with pytest.raises(WrongInput, match=r"no source has brought 'ann/garden': `skillery search`"):
        sources_of(crawler.root, Target("ann/garden"))
    assert target_of(crawler.root, "LOCAL/shelf") == Target("LOCAL/shelf")
    assert target_of(crawler.root, "Dill") == Target("local/shelf/dill")
    (shelf / "deep" / "dill").mkdir(parents=True)
    (shelf / "deep" / "dill" / "SKILL.md").write_bytes(grows("dill"))
    crawler.crawl(f"dir:{shelf}")
    with pytest.raises(WrongInput, match=r"may mean local/shelf/deep/dill, local/shelf/dill: give the whole"):
        target_of(crawler.root, "dill")
    with pytest.raises(WrongInput, match=r"no source has brought 'ann/garden'.*skillery run --source"):
        target_of(crawler.root, "ann/garden")
