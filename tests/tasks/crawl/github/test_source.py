from __future__ import annotations

import pytest

from storage.errors import WrongInput
from tasks.crawl.github.source import split_name
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace import malice
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

SPEC = "github:ann/garden"
HERBS = ("basil", "chard", "dill", "endive")


@pytest.fixture
def garden(world: World) -> Repository:
    repository = world.repository("ann/garden")
    repository.commit({f"beds/{n}/SKILL.md": grows(n) for n in HERBS})
    return repository


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("ann/garden", ("ann/garden", "")),
        ("ann/garden.git", ("ann/garden", "")),
        ("ann/the.garden@v1.0", ("ann/the.garden", "v1.0")),
        ("ann/garden@feature/late", ("ann/garden", "feature/late")),
    ],
)
def test_a_name_may_have_a_ref(name: str, split: tuple[str, str]) -> None:
    assert split_name(name) == split


@pytest.mark.parametrize("name", ["", "ann", "ann/", "ann/..", "ann/garden@", "ann/garden@-x", "a/b/c"])
def test_another_form_is_wrong_input(name: str) -> None:
    with pytest.raises(WrongInput, match="OWNER/REPO"):
        split_name(name)


def test_every_skill_of_a_repository_is_read(garden: Repository, crawler: Crawler) -> None:
    report = crawler.crawl(SPEC)
    assert (report.state, report.new) == ("complete", 4)
    assert sorted(crawler.held()) == [f"ann/garden/beds/{n}" for n in HERBS]


def test_at_a_ref_what_that_ref_holds(garden: Repository, crawler: Crawler) -> None:
    garden.commit({"beds/leek/SKILL.md": grows("leek")}, branch="feature/late")
    assert crawler.crawl(f"{SPEC}@feature/late").new == 5
    assert crawler.crawl(f"{SPEC}@nowhere").failed == {"missing-ref": 1}


def test_the_second_night_asks_once(garden: Repository, crawler: Crawler, market: Marketplace) -> None:
    crawler.crawl(SPEC)
    market.clear_requests()
    assert crawler.crawl(SPEC).unchanged == 4
    assert [(r.kind, r.status) for r in market.requests] == [("commit", 304)]


def test_what_left_the_repository_is_retired_and_what_changed_is_read(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    garden.commit({"beds/dill/SKILL.md": None, "beds/basil/SKILL.md": grows("basil", "Pinch it.")})
    report = crawler.crawl(SPEC)
    assert (report.changed, report.unchanged, report.retired) == (1, 2, 1)
    report = crawler.crawl(SPEC)
    assert (report.new, report.unchanged, report.retired) == (0, 3, 0)
    assert sorted(crawler.held()) == [f"ann/garden/beds/{n}" for n in ("basil", "chard", "endive")]


def test_a_missing_repository_fails_the_source_and_goes_after_three_misses_over_a_week(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    garden.delete()
    reports = [crawler.crawl(SPEC, days=4) for _ in range(2)]
    assert [(r.state, r.failed, r.retired) for r in reports] == [("failed", {"missing": 1}, 0)] * 2
    assert len(crawler.stale()) == 4
    assert crawler.crawl(SPEC).retired == 4


def test_a_withdrawn_repository_goes_at_once(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(SPEC)
    garden.dmca()
    assert crawler.crawl(SPEC).withdrawn == 4
    assert crawler.held() == {}


def test_a_repository_without_skills_is_said_to_have_none(world: World, crawler: Crawler) -> None:
    world.repository("ann/empty").commit({"README.md": b"Nothing grows here.\n"})
    report = crawler.crawl("github:ann/empty")
    assert (report.state, report.failed) == ("failed", {"no-skill": 1})
    assert crawler.crawl("github:ann/empty").failed == {"no-skill": 1}


def test_a_refused_archive_leaves_what_was_known(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(SPEC)
    garden.commit({f"beds/{n}/SKILL.md": grows(n, "Trapped.") for n in HERBS})
    garden.archive_override = malice.climbing()
    report = crawler.crawl(SPEC)
    assert (report.failed, report.retired) == ({"archive-path": 4}, 0)
    assert crawler.held()["ann/garden/beds/dill"] == grows("dill")
    assert len(crawler.stale()) == 4


def test_links_are_named_and_not_followed(garden: Repository, crawler: Crawler) -> None:
    garden.commit({"beds/links/SKILL.md": grows("links"), "beds/links/a.md": b"A"})
    garden.archive_override = malice.links_out()
    report = crawler.crawl(SPEC)
    assert report.failed["symlink"] == 1
    assert not any(b"root" in (text or b"") for text in crawler.held().values())
