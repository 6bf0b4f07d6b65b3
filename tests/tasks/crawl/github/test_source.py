"""A repository as a source, and documents to which several rows lead."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from storage.errors import WrongInput
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS
from storage.state import listed_table
from tasks.crawl import raw_parts
from tasks.crawl.github.source import split_name
from tasks.crawl.source.identity import apart
from tests.support.crawl.crawling import Crawler, grows
from tests.support.crawl.zip_files import zipped
from tests.support.marketplace import malice
from tests.support.marketplace.faults import Fault, Faults
from tests.support.marketplace.repository import Blob, Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.processes import slow_but

SPEC = "github:ann/garden"
DILL = "ann/garden/beds/dill"
HERBS = ("basil", "chard", "dill", "endive", "fennel")


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


def test_at_a_ref_what_that_ref_holds(garden: Repository, crawler: Crawler) -> None:
    garden.commit({"beds/leek/SKILL.md": grows("leek")}, branch="feature/late")
    assert crawler.crawl(f"{SPEC}@feature/late").new == 6
    assert crawler.crawl(f"{SPEC}@nowhere").failed == {"missing-ref": 1}


def test_every_skill_of_a_repository_is_read_and_the_second_night_asks_once(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    report = crawler.crawl(SPEC)
    assert (report.state, report.new) == ("complete", 5)
    assert sorted(crawler.held()) == [f"ann/garden/beds/{n}" for n in HERBS]
    market.clear_requests()
    assert crawler.crawl(SPEC).unchanged == 5
    assert [(r.kind, r.status) for r in market.requests] == [("commit", 304)]


def test_what_left_the_repository_is_retired_and_what_changed_is_read(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    garden.commit({"beds/dill/SKILL.md": None, "beds/basil/SKILL.md": grows("basil", "Pinch it.")})
    report = crawler.crawl(SPEC)
    assert (report.changed, report.unchanged, report.retired) == (1, 3, 1)
    report = crawler.crawl(SPEC)
    assert (report.new, report.unchanged, report.retired) == (0, 4, 0)
    assert sorted(crawler.held()) == [f"ann/garden/beds/{n}" for n in ("basil", "chard", "endive", "fennel")]


def test_a_missing_repository_fails_the_source_and_goes_after_three_misses_over_a_week(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    garden.delete()
    reports = [crawler.crawl(SPEC, days=4) for _ in range(2)]
    assert [(r.state, r.failed, r.retired) for r in reports] == [("failed", {"missing": 1}, 0)] * 2
    assert len(crawler.stale()) == 5
    assert crawler.crawl(SPEC).retired == 5


def test_a_withdrawn_repository_goes_at_once(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(SPEC)
    garden.dmca()
    assert crawler.crawl(SPEC).withdrawn == 5
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
    assert (report.failed, report.retired) == ({"archive-path": 5}, 0)
    assert crawler.held()["ann/garden/beds/dill"] == grows("dill")
    assert len(crawler.stale()) == 5


def archived(repository: Repository, changes: dict[str, bytes | None]) -> None:
    """Let the repository's archives hold these bytes in place of its files; None leaves a file out."""
    held = {path: b"".join(n.pieces()) for path, n in repository.head.tree.walk() if isinstance(n, Blob)}
    told = {path: content for path, content in (held | changes).items() if content is not None}
    files = {f"garden-main/{path}": content for path, content in told.items()}
    repository.archive_override = zipped(files, comment=repository.head.sha.encode())


def raw_row(root: Root, doc_id: str) -> dict[str, Any]:
    parts = [read_frame(root, file, RAW_DOCUMENTS) for file in root.files("raw/documents")]
    return pl.concat(parts).filter(doc_id=doc_id).row(-1, named=True)


LACKING = {
    "beds/dill/SKILL.md": None,
    "beds/chard/scripts/water.sh": None,
    "beds/basil/SKILL.md": b"$Format$",
}


@pytest.mark.parametrize("spec", slow_but({SPEC}, [SPEC, "skillsmp"]))
def test_what_the_archive_lacks_or_has_otherwise_is_fetched_singly(
    garden: Repository, crawler: Crawler, market: Marketplace, spec: str
) -> None:
    garden.commit({"beds/chard/scripts/water.sh": b"echo water\n"})
    archived(garden, LACKING)
    report = crawler.crawl(spec)
    assert (report.new, report.failed) == (5, {})
    assert crawler.held() == {f"ann/garden/beds/{n}": grows(n) for n in HERBS}
    chard = raw_row(crawler.root, "ann/garden/beds/chard")
    assert [file["content"] for file in chard["contents"]] == [b"echo water\n"]
    assert (market.count(kind="archive"), market.count(kind="raw")) == (1, 3)
    assert crawler.crawl(spec).unchanged == 5


def test_ends_of_lines_that_the_archive_has_otherwise_cost_no_request(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    archived(garden, {f"beds/{n}/SKILL.md": grows(n).replace(b"\n", b"\r\n") for n in HERBS})
    assert crawler.crawl(SPEC).new == 5
    assert crawler.held() == {f"ann/garden/beds/{n}": grows(n) for n in HERBS}
    assert market.count(kind="raw") == 0


def test_a_skill_that_an_older_version_took_for_lost_is_fetched_though_nothing_changed(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    rows = (
        listed_table(crawler.root)
        .read()
        .with_columns(
            outcome=pl.when(pl.col("doc_id") == DILL).then(pl.lit("not-in-archive")).otherwise("outcome")
        )
    )
    listed_table(crawler.root).upsert(rows)
    assert (crawler.crawl(SPEC).unchanged, crawler.crawl(SPEC).failed) == (5, {})


@pytest.mark.parametrize("spec", slow_but({SPEC}, [SPEC, "skillsmp"]))
def test_what_neither_archive_nor_forge_has_is_named_each_night(
    garden: Repository, crawler: Crawler, faults: Faults, spec: str
) -> None:
    garden.commit({"beds/chard/scripts/water.sh": b"echo water\n"})
    archived(garden, LACKING)
    faults.script("raw:*", [Fault("html", status=404)] * 3)
    for known in (0, 4, 4):
        report = crawler.crawl(spec, days=8)
        assert (report.unchanged, report.failed) == (known, {"unreadable": 1})
    chard = raw_row(crawler.root, "ann/garden/beds/chard")
    assert [f["code"] for f in chard["findings"]] == ["bundle.unreadable"]
    assert crawler.held()["ann/garden/beds/basil"] == b"$Format$"
    garden.commit({"README.md": b"Sow."})
    assert crawler.crawl(spec).new == 1


@pytest.mark.parametrize("spec", slow_but({SPEC}, [SPEC, "skillsmp"]))
def test_a_second_text_that_folds_onto_a_skill_is_dropped_by_name(
    garden: Repository, crawler: Crawler, spec: str
) -> None:
    garden.commit({"beds/dill/skill.md": grows("dill", "Another."), "beds/leek/skill.md": grows("leek")})
    assert crawler.crawl(spec).failed == {"duplicate_id": 1}
    assert crawler.dropped()["duplicate_id"] == "beds/dill/skill.md"
    assert crawler.held()[DILL] == grows("dill")


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
    world: World, garden: Repository, crawler: Crawler, market: Marketplace, monkeypatch: pytest.MonkeyPatch
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
    taken = world.repository("ann/garden")
    taken.commit({"beds/dill/SKILL.md": grows("dill", "Sold out.")})
    crawler.crawl()
    held, kept_apart = crawler.held(), apart("ann/garden", str(taken.repo_id))
    assert held["ann/allotment/beds/dill"] == grows("dill", "Sow it in May.")
    assert (held.get(DILL), held[f"{kept_apart}/beds/dill"]) == (None, grows("dill", "Sold out."))
    assert "ann/allotment/beds/dill" not in crawler.aliases()
