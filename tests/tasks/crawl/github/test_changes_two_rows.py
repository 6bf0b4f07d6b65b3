"""One document to which several rows lead: other refs, other letter case, other names of its repository."""

from __future__ import annotations

import pytest

from tasks.crawl import raw_parts
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

DILL = "ann/garden/beds/dill"
HERBS = ("basil", "chard", "dill", "endive", "fennel")


@pytest.fixture
def branched(world: World, garden: Repository) -> Repository:
    """The garden, with a branch `dev` that is listed too, and whose dill is another."""
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Of dev.")}, branch="dev")
    for herb in HERBS:
        world.list_skill(garden, f"beds/{herb}", ref="dev")
    return garden


def test_of_two_refs_the_first_counts_whichever_changes(
    world: World, branched: Repository, crawler: Crawler
) -> None:
    assert crawler.crawl().failed == {"duplicate_id": 5}
    branched.commit({"beds/dill/SKILL.md": grows("dill", "Of main.")})
    assert crawler.crawl().failed == {"duplicate_id": 5}
    assert crawler.held()[DILL] == grows("dill", "Of dev.")
    branched.commit({"beds/dill/SKILL.md": grows("dill", "Late.")}, branch="dev")
    crawler.crawl(days=8)
    crawler.crawl()
    assert crawler.held()[DILL] == grows("dill", "Late.")


def test_what_one_ref_has_lost_is_retired_when_the_last_has(branched: Repository, crawler: Crawler) -> None:
    crawler.crawl(days=8)
    branched.commit({"beds/dill/SKILL.md": None}, branch="dev")
    assert crawler.crawl(days=8).retired == 0
    crawler.crawl(days=8)
    assert crawler.held()[DILL] == grows("dill")
    branched.commit({"beds/dill/SKILL.md": None})
    assert crawler.crawl().retired == 1
    assert DILL not in crawler.held()


def test_refs_of_one_commit_share_its_archive(
    world: World,
    garden: Repository,
    crawler: Crawler,
    market: Marketplace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tasks.crawl.collect._CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(raw_parts, "BATCH_DOCUMENTS", 1)
    refs = ("dev", "next", "old")
    garden.commit({f"{ref}/{herb}/SKILL.md": grows(f"{herb}-{ref}") for herb in HERBS for ref in refs})
    world.rows = [row for row in world.rows if row.folder.startswith("beds/")]
    for ref in refs:
        garden.branch(ref)
        for herb in HERBS:
            world.list_skill(garden, f"{ref}/{herb}", ref=ref)
    report = crawler.crawl()
    assert (report.state, report.new, report.failed) == ("complete", 20, {})
    assert market.count(kind="archive") == 1


def test_letter_case_and_accents_make_no_other_document(world: World, crawler: Crawler) -> None:
    world.lists_new_skills = False
    cafe = world.repository("bo/Cafe")
    cafe.commit({"cafe\u0301/SKILL.md": grows("cafe")})
    for url in ("bo/Cafe/tree/main/caf%C3%A9", "Bo/cafe/tree/main/Cafe%CC%81"):
        world.list_skill(cafe, "x", url=f"https://github.com/{url}")
    report = crawler.crawl()
    assert (report.new, report.failed) == (1, {"duplicate_id": 1})


def test_an_old_name_that_another_repository_took_leads_nowhere_and_retires_nothing(
    world: World, garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(days=8)
    garden.rename("ann/allotment")
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it in May.")})
    crawler.crawl(days=8)
    world.list_skill(garden, "beds/dill", url="https://github.com/ann/garden/tree/main/beds/dill")
    world.relist(garden)
    crawler.crawl(days=8)
    world.repository("ann/garden").commit({"beds/dill/SKILL.md": grows("dill", "Sold out.")})
    crawler.crawl()
    held = crawler.held()
    assert held["ann/allotment/beds/dill"] == grows("dill", "Sow it in May.")
    assert held[DILL] == grows("dill", "Sold out.")
    assert "ann/allotment/beds/dill" not in crawler.aliases()
