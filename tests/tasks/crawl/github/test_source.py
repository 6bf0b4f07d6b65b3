"""Repositories as sources: which are due, what is fetched of them, and when their documents retire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS
from storage.state import LISTED, REPOSITORIES, listed_table
from tasks.crawl import raw_parts
from tasks.crawl.github.repositories import (
    MISSED_FOR,
    MISSES,
    NO_MISSES,
    ListedRepository,
    ReferenceCounts,
    due,
    fate_of,
    listed_repositories,
)
from tasks.crawl.github.source import split_name
from tasks.crawl.source.identity import apart
from tests.support.crawl.crawling import Crawler, grows
from tests.support.crawl.zip_files import zipped
from tests.support.marketplace.messages import Fault, Faults
from tests.support.marketplace.repository import Blob, Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

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
    for wrong in ("", "ann", "ann/", "ann/..", "ann/garden@", "ann/garden@-x", "a/b/c"):
        with pytest.raises(WrongInput, match="OWNER/REPO"):
            split_name(wrong)


def test_every_skill_of_a_repository_is_read_and_the_second_night_asks_once(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    report = crawler.crawl(SPEC)
    assert (report.state, report.new) == ("complete", 5)
    assert sorted(crawler.held()) == [f"ann/garden/beds/{n}" for n in HERBS]
    market.clear_requests()
    assert crawler.crawl(SPEC).unchanged == 5
    assert [(r.kind, r.status) for r in market.requests] == [("commit", 304)]
    garden.commit({"beds/leek/SKILL.md": grows("leek")}, branch="feature/late")
    assert crawler.crawl(f"{SPEC}@feature/late").listed == 6
    assert crawler.crawl(f"{SPEC}@nowhere").failed == {"missing-ref": 1}


def test_what_left_is_retired_and_what_changed_is_read(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(SPEC)
    garden.commit({"beds/dill/SKILL.md": None, "beds/basil/SKILL.md": grows("basil", "Pinch it.")})
    report = crawler.crawl(SPEC)
    assert (report.changed, report.unchanged, report.retired) == (1, 3, 1)
    report = crawler.crawl(SPEC)
    assert (report.new, report.unchanged, report.retired) == (0, 4, 0)
    assert sorted(crawler.held()) == [f"ann/garden/beds/{n}" for n in ("basil", "chard", "endive", "fennel")]


def test_a_missing_repository_goes_after_three_misses_over_a_week(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    garden.delete()
    reports = [crawler.crawl(SPEC, days=4) for _ in range(2)]
    assert [(r.state, r.failed, r.retired) for r in reports] == [("failed", {"missing": 1}, 0)] * 2
    assert len(crawler.stale()) == 5
    assert crawler.crawl(SPEC).retired == 5
    garden.fate = "open"
    assert crawler.crawl(SPEC).new == 5
    garden.fate = "dmca"  # a law withdraws at once
    assert (crawler.crawl(SPEC).withdrawn, crawler.held()) == (5, {})


def test_a_repository_without_skills_is_said_to_have_none(world: World, crawler: Crawler) -> None:
    world.repository("ann/empty").commit({"README.md": b"Nothing grows here.\n"})
    report = crawler.crawl("github:ann/empty")
    assert (report.state, report.failed) == ("failed", {"no-skill": 1})
    assert crawler.crawl("github:ann/empty").failed == {"no-skill": 1}


def archived(repository: Repository, changes: dict[str, bytes | None]) -> None:
    """Let the repository's archives hold these bytes in place of its files; None leaves a file out."""
    held = {path: n.content for path, n in repository.head.tree.walk() if isinstance(n, Blob)}
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


def test_what_the_archive_lacks_is_fetched_singly(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    garden.commit({"beds/chard/scripts/water.sh": b"echo water\n"})
    archived(garden, LACKING)
    report = crawler.crawl(SPEC)
    assert (report.new, report.failed) == (5, {})
    assert crawler.held() == {f"ann/garden/beds/{n}": grows(n) for n in HERBS}
    chard = raw_row(crawler.root, "ann/garden/beds/chard")
    assert [file["content"] for file in chard["contents"]] == [b"echo water\n"]
    assert (market.count(kind="archive"), market.count(kind="raw")) == (1, 3)
    assert crawler.crawl(SPEC).unchanged == 5


def test_ends_of_lines_that_the_archive_has_otherwise_cost_no_request(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    archived(garden, {f"beds/{n}/SKILL.md": grows(n).replace(b"\n", b"\r\n") for n in HERBS})
    assert crawler.crawl(SPEC).new == 5
    assert crawler.held() == {f"ann/garden/beds/{n}": grows(n) for n in HERBS}
    assert market.count(kind="raw") == 0


def test_a_skill_that_an_older_version_took_for_lost_is_fetched(garden: Repository, crawler: Crawler) -> None:
    crawler.crawl(SPEC)
    lost = pl.when(pl.col("doc_id") == DILL).then(pl.lit("not-in-archive")).otherwise("outcome")
    table = listed_table(crawler.root)
    table.upsert(table.read().with_columns(outcome=lost))
    assert (crawler.crawl(SPEC).unchanged, crawler.crawl(SPEC).failed) == (5, {})


def test_what_neither_has_is_named_each_night(garden: Repository, crawler: Crawler, faults: Faults) -> None:
    garden.commit({"beds/chard/scripts/water.sh": b"echo water\n"})
    archived(garden, LACKING)
    faults.script("raw:*", [Fault("html", status=404)] * 3)
    for known in (0, 4, 4):
        report = crawler.crawl(SPEC, days=8)
        assert (report.unchanged, report.failed) == (known, {"unreadable": 1})
    chard = raw_row(crawler.root, "ann/garden/beds/chard")
    assert [f["code"] for f in chard["findings"]] == ["bundle.unreadable"]
    assert crawler.held()["ann/garden/beds/basil"] == b"$Format$"
    garden.commit({"README.md": b"Sow."})
    assert crawler.crawl(SPEC).new == 1


def test_a_second_text_that_folds_onto_a_skill_is_dropped(garden: Repository, crawler: Crawler) -> None:
    garden.commit({"beds/dill/skill.md": grows("dill", "Another."), "beds/leek/skill.md": grows("leek")})
    assert crawler.crawl(SPEC).failed == {"duplicate_id": 1}
    assert crawler.dropped()["duplicate_id"] == "beds/dill/skill.md"
    assert crawler.held()[DILL] == grows("dill")


@pytest.fixture
def branched(world: World, garden: Repository) -> Repository:
    """The garden, with a branch `dev` that is listed too, and whose dill is another."""
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Of dev.")}, branch="dev")
    for herb in HERBS:
        world.list_skill(garden, f"beds/{herb}", ref="dev")
    return garden


def test_of_two_refs_the_first_counts(branched: Repository, crawler: Crawler) -> None:
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


NOW = datetime(2026, 6, 1, tzinfo=UTC)


def listed(*places: tuple[str, str], at: datetime = NOW) -> pl.DataFrame:
    rows = [
        {"repository": repository.lower(), "written": repository, "ref": "main", "rest": rest,
         "source": "skillsmp", "source_id": rest, "updated_at": at}
        for repository, rest in places
    ]  # fmt: skip
    return pl.DataFrame([{n: r.get(n) for n in LISTED} for r in rows], schema=LISTED)


def looked_at(units: list[ListedRepository], **values: Any) -> pl.DataFrame:  # noqa: ANN401
    rows = [
        {"repository": u.name.lower(), "ref": u.ref, "source": u.source, "state": "ok",
         "listed": u.digest, "checked_at": NOW, **values}
        for u in units
    ]  # fmt: skip
    return pl.DataFrame([{n: r.get(n) for n in REPOSITORIES} for r in rows], schema=REPOSITORIES)


def nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=REPOSITORIES)


def test_what_was_never_looked_at_is_due_and_what_is_as_listed_is_not() -> None:
    rows = pl.concat([listed(("Ann/Garden", "a")), listed(("ann/garden", "b"), ("bo/herbs", "c"))])
    units = listed_repositories(rows, nothing())
    assert [(u.name.lower(), len(u.listed)) for u in units] == [("ann/garden", 2), ("bo/herbs", 1)]
    assert due(units, NOW, 7) == units
    assert due(listed_repositories(rows, looked_at(units)), NOW, 7) == []


def test_a_row_that_is_new_or_updated_makes_its_repository_due() -> None:
    before = looked_at(listed_repositories(listed(("ann/garden", "a"), ("bo/herbs", "c")), nothing()))
    more = listed(("ann/garden", "a"), ("ann/garden", "b"), ("bo/herbs", "c"))
    assert [u.name for u in due(listed_repositories(more, before), NOW, 7)] == ["ann/garden"]
    later = pl.concat([listed(("ann/garden", "a")), listed(("bo/herbs", "c"), at=NOW + timedelta(1))])
    assert [u.name for u in due(listed_repositories(later, before), NOW, 7)] == ["bo/herbs"]


def test_what_could_not_be_looked_at_is_due_again_and_what_was_given_up_is_not() -> None:
    rows = listed(("ann/garden", "a"))
    units = listed_repositories(rows, nothing())
    for state in ("failed", "missing", "denied"):
        assert due(listed_repositories(rows, looked_at(units, state=state)), NOW, 7), state
    for state in ("gone", "withdrawn", "refused", "too-large"):
        assert not due(listed_repositories(rows, looked_at(units, state=state)), NOW, 7), state


def test_what_changed_comes_first_then_what_failed_then_what_was_not_looked_at_for_longest() -> None:
    places = [("a/recent", "x"), ("b/old", "x"), ("c/older", "x"), ("d/failed", "x"), ("e/new", "x")]
    units = listed_repositories(listed(*places), nothing())
    known = pl.concat([
        looked_at(units[1:2], checked_at=NOW - timedelta(days=9)),
        looked_at(units[2:3], checked_at=NOW - timedelta(days=30)),
        looked_at(units[3:4], state="failed"), looked_at(units[:1]),
    ])  # fmt: skip
    found = due(listed_repositories(listed(*places), known), NOW, 7)
    assert [u.name for u in found] == ["e/new", "d/failed", "c/older", "b/old"]


def fates(days: list[float], reason: str = "missing") -> list[str]:
    row: dict[str, Any] = dict(NO_MISSES)
    found = []
    for day in days:
        fate, row = fate_of(reason, row, NOW + timedelta(days=day))
        found.append(fate)
    return found


def test_three_misses_over_a_week_retire_and_a_law_withdraws_at_once() -> None:
    for reason in ("missing", "denied"):
        assert fates([0, 3, 7], reason) == ["stale", "stale", "retired"]
    assert fates([0], "withdrawn") == ["withdrawn"]
    missed = {"misses": 2, "first_missed_at": NOW, "state": "missing"}
    for reason in ("timeout", "server", "quota", "too-large", "connection"):
        fate, row = fate_of(reason, missed, NOW + timedelta(days=30))
        assert (fate, "misses" in row) == ("stale", False), "it is none of the repository's doing"


@given(st.lists(st.floats(0, 60), max_size=12).map(sorted))
def test_nothing_is_retired_before_both_bounds_are_reached(days: list[float]) -> None:
    for n, fate in enumerate(fates(days), 1):
        long_enough = timedelta(days=days[n - 1]) - timedelta(days=days[0]) >= MISSED_FOR
        assert (fate == "retired") == (n >= MISSES and long_enough)


def test_a_document_is_unclaimed_once_all_its_rows_are_released(tmp_path: Path) -> None:
    place = {"repository": "ann/garden", "rest": "dill", "source": "skillsmp", "outcome": "ok"}
    rows = [{**place, "ref": ref, "doc_id": "ann/garden/dill"} for ref in ("main", "dev")]
    frame = pl.DataFrame([{n: r.get(n) for n in LISTED} for r in rows], schema=LISTED)
    listed_table(Root(tmp_path)).upsert(frame)
    references = ReferenceCounts(Root(tmp_path), "skillsmp")
    references.release(rows[:1])
    assert references.unreferenced(rows) == references.unreferenced(rows) == []
    references.release(rows[1:])
    assert references.unreferenced(rows) == rows
