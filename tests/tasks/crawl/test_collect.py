from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from storage.errors import NothingReadable, SourceError, SourceUnavailable
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import LISTINGS, RAW_DOCUMENTS, Dropped
from storage.state import read_sources
from tasks.crawl.collect import SourceReport, collect, require_readable
from tasks.crawl.http.settings import CrawlSettings
from tests.support.crawl.crawling import opened
from tests.support.roots.nights import HandSource, Nights, skill

SPEC = "dir:shelf"
BROKEN = SourceUnavailable(SPEC, "timeout", "no answer in 5 s")
MISSING = SourceError(SPEC, "missing", "there is no such folder")


def source(*items: object, version: str | Exception | None = None) -> HandSource:
    return HandSource(SPEC, *items, version=version)


def counts(report: SourceReport) -> tuple[int, int, int, int, int]:
    return report.listed, report.new, report.changed, report.unchanged, report.retired


def raw_ids(nights: Nights) -> list[str]:
    frames = [read_frame(nights.root, f, RAW_DOCUMENTS) for f in nights.raw_parts()]
    return sorted(pl.concat(frames)["doc_id"]) if frames else []


def test_what_is_new_changed_unchanged_and_gone_is_counted(nights: Nights) -> None:
    first = nights.crawl(source(skill("a"), skill("b"), skill("c")))
    assert (first.state, counts(first)) == ("complete", (3, 3, 0, 0, 0))
    second = nights.crawl(source(skill("a"), skill("b", "Knead."), skill("d")))
    assert (second.state, counts(second)) == ("complete", (3, 1, 1, 1, 1))
    retired = nights.seen("retired_at")
    assert retired == {("a", SPEC): None, ("b", SPEC): None, ("c", SPEC): nights.now, ("d", SPEC): None}
    before, raw_before = nights.seen(), nights.times("raw")
    report = nights.crawl(source(skill("a"), skill("b", "Knead."), skill("d")))
    assert (counts(report), nights.times("raw")) == ((3, 0, 0, 3, 0), raw_before)
    touched = {key: {**row, "last_seen_at": nights.now} for key, row in before.items() if key != ("c", SPEC)}
    assert nights.seen() == before | touched


def test_a_part_holds_at_most_a_hundred_documents_and_a_listing_each(nights: Nights) -> None:
    nights.crawl(source(*(skill(f"s{n}") for n in range(120))))
    sizes = [read_frame(nights.root, f, RAW_DOCUMENTS).height for f in nights.raw_parts()]
    assert sizes == [100, 20]
    assert all(f.startswith("raw/documents/date=2026-03-02/run=20260302/part-") for f in nights.raw_parts())
    listings = [read_frame(nights.root, f, LISTINGS) for f in nights.root.files("raw/listings")]
    assert sorted(pl.concat(listings)["source_id"]) == raw_ids(nights)
    assert set(Counter(raw_ids(nights)).values()) == {1}


def test_documents_of_many_parts_are_counted_once(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.crawl.collect._CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("tasks.crawl.raw_parts.BATCH_DOCUMENTS", 10)
    many = [skill(f"s{n}") for n in range(45)]
    assert counts(nights.crawl(source(*many))) == (45, 45, 0, 0, 0)
    assert counts(nights.crawl(source(*many[:40]))) == (40, 0, 0, 40, 5)
    assert len(nights.seen()) == 45


def test_a_source_that_says_it_is_as_it_was_is_not_read(nights: Nights) -> None:
    nights.crawl(source(skill("a"), version="1"))
    same = source(skill("b"), version="1")
    assert counts(nights.crawl(same)) == (1, 0, 0, 1, 0)
    assert same.reads == 0
    assert nights.seen("last_seen_at") == {("a", SPEC): nights.now}
    assert nights.crawl(source(skill("b"), version="2")).new == 1


@pytest.mark.parametrize(
    "failure", [Dropped("x", SPEC, "unreadable", "no permission"), BROKEN], ids=["a document", "the source"]
)
def test_after_a_failure_a_source_is_read_again_whatever_it_says(nights: Nights, failure: object) -> None:
    nights.crawl(source(skill("a"), failure, version="1"))
    again = source(skill("a"), skill("x"), version="1")
    assert nights.crawl(again).new == 1
    assert again.reads == 1


def test_a_source_is_read_again_when_more_of_it_is_asked_for_than_before(nights: Nights) -> None:
    items = [skill("a"), skill("b"), skill("c")]
    nights.crawl(source(*items, version="1"), limit=2)
    for limit, reads in ((2, 0), (1, 0), (2, 0), (3, 1), (3, 0), (None, 0)):
        shelf = source(*items, version="1")
        nights.crawl(shelf, limit=limit)
        assert shelf.reads == reads, limit


def test_what_the_last_reading_did_not_reach_is_not_taken_for_unchanged(nights: Nights) -> None:
    nights.crawl(source(skill("a"), skill("b"), version="1"))
    day = nights.now
    nights.crawl(source(skill("a", "Knead."), BROKEN, version="2"), limit=1)
    report = nights.crawl(source(version="2"), limit=1)
    assert (report.state, report.listed) == ("limited", 1)
    assert nights.seen("last_seen_at") == {("a", SPEC): nights.now, ("b", SPEC): day}


@pytest.mark.parametrize("behind", [skill("c"), BROKEN], ids=["more documents", "a source that breaks off"])
def test_a_limit_takes_the_first_documents_and_never_retires(nights: Nights, behind: object) -> None:
    nights.crawl(source(skill("a"), skill("b"), skill("c")))
    report = nights.crawl(source(skill("x"), skill("y"), behind), limit=2)
    assert (report.state, counts(report), report.failed) == ("limited", (2, 2, 0, 0, 0), {})
    assert read_sources(nights.root)[SPEC]["last_complete"] != nights.now.isoformat()
    assert set(nights.seen("retired_at").values()) == set(nights.seen("stale_since").values()) == {None}


def test_a_document_is_retired_once_and_new_when_it_comes_back(nights: Nights) -> None:
    nights.crawl(source(skill("a"), skill("b"), skill("c")))
    first_seen = nights.now
    report = nights.crawl(source(skill("a")), limit=1)  # a limit that reaches the end retires too
    gone = nights.now
    assert (report.state, report.retired) == ("complete", 2)
    assert nights.crawl(source(skill("a"))).retired == 0
    assert nights.seen("retired_at")["b", SPEC] == gone
    nights.crawl(source(skill("a"), Dropped("b", SPEC, "unreadable", "")))
    nights.crawl(source(MISSING))
    assert [nights.seen("stale_since")[doc_id, SPEC] for doc_id in "ab"] == [nights.now, None]
    report = nights.crawl(source(skill("a"), skill("b"), skill("c", "Bake it.")))
    assert counts(report) == (3, 2, 0, 1, 0)
    for doc_id in "bc":
        row = nights.seen()[doc_id, SPEC]
        assert (row["retired_at"], row["first_seen_at"]) == (None, first_seen)


@pytest.mark.parametrize("shelf", [source(version=MISSING), source(MISSING)], ids=["version", "read"])
def test_a_source_that_cannot_be_read_leaves_its_documents_stale(nights: Nights, shelf: HandSource) -> None:
    nights.crawl(source(skill("a"), skill("b")))
    report = nights.crawl(shelf)
    assert (report.state, counts(report)) == ("failed", (0, 0, 0, 0, 0))
    assert (report.failed, report.message) == ({"missing": 1}, "dir:shelf: there is no such folder")
    since = nights.now
    assert nights.seen("stale_since") == {("a", SPEC): since, ("b", SPEC): since}
    nights.crawl(shelf)
    assert set(nights.seen("stale_since").values()) == {since}
    assert set(nights.seen("retired_at").values()) == {None}


def test_what_was_read_before_a_source_broke_off_is_kept_and_the_rest_stale(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.crawl.raw_parts.BATCH_DOCUMENTS", 2)
    nights.crawl(source(skill("old"), skill("s0", "Before.")))
    dropped, some = Dropped("b", SPEC, "empty", "no content"), [skill(f"s{n}") for n in range(3)]
    report = nights.crawl(source(dropped, *some, BROKEN, skill("never")))
    assert (report.state, counts(report)) == ("partial", (3, 2, 1, 0, 0))
    assert report.failed == {"empty": 1, "timeout": 1}
    assert nights.dropped()["doc_id"].to_list() == ["b"]
    assert raw_ids(nights) == ["old", "s0", "s0", "s1", "s2"]
    assert {doc_id for (doc_id, _), at in nights.seen("stale_since").items() if at is not None} == {"old"}
    assert counts(nights.crawl(source(*some)))[1:] == (0, 0, 3, 1)


def test_what_was_not_taken_is_recorded_and_its_known_documents_are_stale(nights: Nights) -> None:
    nights.crawl(source(skill("a"), skill("b"), skill("c"), skill("folder/d")))
    bad = [
        Dropped("b", SPEC, "unreadable", "no permission"),
        Dropped("folder", SPEC, "unreadable", "no permission"),
        Dropped("link", SPEC, "symlink", "link -> a"),
    ]
    report = nights.crawl(source(skill("a"), *bad))
    assert (report.state, report.failed, report.retired) == ("complete", {"unreadable": 2, "symlink": 1}, 1)
    stale = {doc_id for (doc_id, _), at in nights.seen("stale_since").items() if at == nights.now}
    assert stale == {"b", "folder/d"}
    assert nights.seen("retired_at")["c", SPEC] == nights.now
    assert sorted(nights.dropped()["doc_id"]) == ["b", "folder", "link"]


def test_an_id_that_a_source_holds_twice_is_taken_once(nights: Nights) -> None:
    report = nights.crawl(source(skill("a", "first"), skill("b"), skill("a", "second")))
    assert (counts(report), report.failed) == ((2, 2, 0, 0, 0), {"duplicate_id": 1})
    assert raw_ids(nights) == ["a", "b"]
    assert set(nights.seen("stale_since").values()) == {None}


def test_two_sources_that_hold_one_document_are_both_recorded(nights: Nights) -> None:
    listed, cloned = "skillsmp", "git+https://github.com/o/r"
    nights.crawl(HandSource(listed, skill("o/r/a")))
    nights.crawl(HandSource(cloned, skill("o/r/a", "Knead.")))
    assert nights.seen("retired_at") == {("o/r/a", cloned): None, ("o/r/a", listed): None}
    nights.crawl(HandSource(listed, skill("o/r/b")))
    assert nights.seen("retired_at")["o/r/a", listed] == nights.now
    assert nights.seen("retired_at")["o/r/a", cloned] is None
    assert read_sources(nights.root).keys() == {listed, cloned}


def test_a_run_that_is_tried_again_rewrites_no_part(nights: Nights) -> None:
    nights.crawl(source(skill("a")))
    before = nights.times("raw")
    nights.night -= 1
    nights.crawl(source(skill("a"), skill("b")))
    assert before.items() <= nights.times("raw").items()
    assert raw_ids(nights) == ["a", "b"]
    by_part = {r["raw_part"]: r["doc_id"] for r in nights.seen().values()}
    assert {p: read_frame(nights.root, p, RAW_DOCUMENTS)["doc_id"].item() for p in by_part} == by_part


def test_a_good_reading_is_remembered_through_failures(nights: Nights) -> None:
    nights.crawl(source(skill("a")))
    good = nights.now.isoformat()
    nights.crawl(source(MISSING))
    failed = nights.now.isoformat()
    nights.crawl(source(MISSING))
    record = read_sources(nights.root)[SPEC]
    assert (record["state"], record["last_complete"], record["stale_since"]) == ("failed", good, failed)
    nights.crawl(source(skill("a")))
    record = read_sources(nights.root)[SPEC]
    assert (record["last_complete"], record["stale_since"]) == (nights.now.isoformat(), None)


def test_a_run_needs_one_readable_source() -> None:
    failed = {"state": "failed", "message": "dir:x: missing"}
    require_readable([])
    require_readable([failed, {"state": "partial", "message": "broke off"}])
    with pytest.raises(NothingReadable, match=r"dir:x: missing; dir:x: missing"):
        require_readable([failed, failed])


def test_raising_the_size_limit_reads_what_was_left_unread(tmp_path: Path) -> None:
    shelf, root = tmp_path / "shelf", Root(tmp_path / "root")
    (shelf / "long").mkdir(parents=True)
    (shelf / "long" / "SKILL.md").write_text("# Long\n\n" + "A sentence. " * 200, "utf-8")
    for night, limit in enumerate((1_000, 1_000, 2_000_000), start=1):
        source = opened(f"dir:{shelf}", max_document_bytes=limit)
        report = collect(
            source, root, run_id=f"r{night}", now=datetime(2026, 1, night, tzinfo=UTC),
            settings=CrawlSettings(max_document_bytes=limit),
        )  # fmt: skip
        assert (report.new, report.changed) == ((1, 0), (0, 0), (0, 1))[night - 1]


@pytest.mark.parametrize(
    ("budget", "setting"),
    [({"source_bytes": 30}, "SKILLERY_SOURCE_BYTES"), ({"source_seconds": 1e-9}, "SKILLERY_SOURCE_SECONDS")],
)
def test_a_source_over_its_budget_keeps_what_was_read_and_is_named(
    nights: Nights, budget: dict[str, float], setting: str
) -> None:
    shelf, settings = source(skill("a"), skill("b"), skill("c")), CrawlSettings.model_validate(budget)
    for night in ("r1", "r2"):
        report = collect(shelf, nights.root, run_id=night, now=nights.now, settings=settings)
        assert (report.state, report.failed) == ("partial", {"budget": 1})
        assert 1 <= report.listed < 3
        assert (report.message or "").startswith(SPEC)
        assert setting in (report.message or "")
    report = nights.crawl(shelf)
    assert (report.state, report.listed, report.retired) == ("complete", 3, 0)
