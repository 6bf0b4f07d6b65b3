"""Items that sources yield: what becomes of each, also of values that no file holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from storage.errors import SourceUnavailable
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import DROPPED, LISTINGS, Dropped, Listing, RawDocument
from storage.state import seen_table
from storage.tombstones import Tombstone, add_tombstones
from tasks.crawl import raw_parts
from tasks.crawl.collect import SourceReport, collect
from tasks.crawl.source.base import Gone, Item, Missed, RequestUsage, Unchanged
from tests.support.roots.nights import HandSource, Nights, skill

SPEC = "skillsmp"
NOW = datetime(2026, 5, 1, 2, tzinfo=UTC)
HALF = "\ud83d"  # the first half of a surrogate pair


class Marketplace(HandSource):
    """A source that lists, and says itself what is gone."""

    exhaustive, gives_listings = False, True

    def __init__(self, *items: object, root: Nights | None = None) -> None:
        super().__init__(SPEC, *items)
        self.nights, self.at_checkpoints = root, list[set[str]]()

    def checkpoint(self) -> None:
        if self.nights is not None:
            self.at_checkpoints.append(set(seen_table(self.nights.root).read()["doc_id"]))

    def usage(self) -> RequestUsage:
        return RequestUsage(requests=7, quota_left=43)


def reasons(nights: Nights) -> list[tuple[str, str]]:
    frames = [read_frame(nights.root, f, DROPPED) for f in nights.root.files("dropped")]
    return pl.concat(frames).select("doc_id", "reason").rows() if frames else []


def test_what_was_missed_is_stale_until_it_is_met_again(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a"), skill("b")))
    report = nights.crawl(Marketplace(Missed(("a", "x"), "timeout", "no answer"), Unchanged(("y",))))
    assert (report.state, report.listed, report.failed) == ("complete", 3, {"timeout": 2, "unknown": 1})
    assert (report.unchanged, report.retired) == (0, 0)  # a list may leave out what stays
    assert (report.requests, report.quota_left) == (7, 43)
    since = nights.now
    assert nights.seen("stale_since") == {("a", SPEC): since, ("b", SPEC): None}
    nights.crawl(Marketplace(Missed(("a",), "timeout", "no answer")))
    assert nights.seen("stale_since")["a", SPEC] == since
    nights.crawl(Marketplace(Unchanged(("a",))))
    assert nights.seen("stale_since")["a", SPEC] is None


@pytest.mark.parametrize("reason", ["retired", "withdrawn"])
def test_what_is_gone_is_retired_counted_and_named(nights: Nights, reason: str) -> None:
    nights.crawl(Marketplace(skill("a"), skill("b")))
    report = nights.crawl(Marketplace(Gone(("a", "x"), reason, "HTTP 451")))  # type: ignore[arg-type]
    assert (report.retired, report.withdrawn) == ((1, 0) if reason == "retired" else (0, 1))
    assert nights.seen("retired_at") == {("a", SPEC): nights.now, ("b", SPEC): None}
    assert ("a", reason) in reasons(nights)
    assert report.failed == {}


def test_rows_of_a_list_are_kept_and_not_made_up_of_documents(nights: Nights) -> None:
    rows = [Listing(SPEC, f"id-{n}", name=f"n{n}") for n in range(230)]
    nights.crawl(Marketplace(*rows, skill("a")))
    frames = [read_frame(nights.root, f, LISTINGS) for f in nights.root.files("raw/listings")]
    assert sorted(pl.concat(frames)["source_id"]) == sorted(row.source_id for row in rows)


@pytest.mark.parametrize(("seconds", "settled"), [(0.0, [10, 20, 23, 23]), (60.0, [23])])
def test_a_source_is_told_when_what_it_yielded_is_on_disk_and_never_before(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, seconds: float, settled: list[int]
) -> None:
    monkeypatch.setattr("tasks.crawl.collect._CHECKPOINT_SECONDS", seconds)
    monkeypatch.setattr(raw_parts, "BATCH_DOCUMENTS", 10)
    source = Marketplace(*(skill(f"s{n}") for n in range(23)), root=nights)
    nights.crawl(source)
    assert [len(ids) for ids in source.at_checkpoints] == settled


def test_a_source_that_breaks_off_is_told_what_was_kept(nights: Nights) -> None:
    broken = SourceUnavailable(SPEC, "quota", "the day's quota is used up")
    source = Marketplace(skill("a"), broken, root=nights)
    report = nights.crawl(source)
    assert (report.state, report.new, report.failed) == ("partial", 1, {"quota": 1})
    assert source.at_checkpoints[-1] == {"a"}
    report = nights.crawl(Marketplace(broken))
    assert (report.state, nights.seen("stale_since")) == ("partial", {("a", SPEC): None})
    assert nights.crawl(Marketplace(SourceUnavailable(SPEC, "html", "a wall"))).state == "failed"
    assert nights.seen("stale_since") == {("a", SPEC): nights.now}


def test_a_part_holds_no_more_than_fits_into_memory(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_parts, "BATCH_BYTES", 10_000)
    nights.crawl(Marketplace(*(skill(f"s{n}", "Knead. " * 700) for n in range(9))))
    assert len(nights.raw_parts()) == 3


def test_what_was_forgotten_is_not_taken_again_by_id_or_by_text(nights: Nights) -> None:
    text = skill("a", "Keep this out.")
    add_tombstones(nights.root, [Tombstone("a", "document", "a", raw_hash=text.raw_hash)], nights.now)
    same_text = replace(text, doc_id="b")
    report = nights.crawl(Marketplace(skill("a", "Other words."), same_text, skill("c"), Unchanged(("a",))))
    assert (report.new, report.failed) == (1, {"forgotten": 3})
    assert set(nights.seen()) == {("c", SPEC)}


def document(name: str, **fields: object) -> RawDocument:
    return RawDocument(
        doc_id=f"ada/{name}", source="given", content=b"Pick it.", size=8, raw_hash=name, **fields
    )  # type: ignore[arg-type]


def crawled(root: Root, *items: Item | Exception, run: str = "one") -> SourceReport:
    return collect(HandSource("given", *items), root, run_id=run, now=NOW)


def dropped(root: Root, run: str = "one") -> dict[str, str]:
    rows = pl.read_parquet(root.at(f"dropped/{run}.parquet"))
    return dict(rows.select("doc_id", "reason").iter_rows())


def held(root: Root) -> set[str]:
    return set(seen_table(root).read().filter(pl.col("stale_since").is_null())["doc_id"])


@pytest.mark.parametrize(
    "fields",
    [
        {"stars": 10**30}, {"stars": 1e300}, {"repo": HALF}, {"repo_licence": HALF}, {"tags": (HALF,)},
        {"url": 7}, {"size": 2**63},
    ],
    ids=str,
)  # fmt: skip
def test_a_document_that_no_file_can_hold_is_dropped_and_the_others_are_kept(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    root = Root(tmp_path)
    bad = document("bad")
    for name, value in fields.items():
        object.__setattr__(bad, name, value)
    report = crawled(root, document("mint"), bad, document("sage"))
    assert (report.state, report.new, report.listed) == ("complete", 2, 3)
    assert held(root) == {"ada/mint", "ada/sage"}
    assert dropped(root) == {"ada/bad": "unreadable"}
    object.__setattr__(bad, "doc_id", "ada/mint")  # what was there before stays, stale
    object.__setattr__(bad, "raw_hash", "other")
    crawled(root, bad, document("sage"), run="two")
    rows = {row["doc_id"]: row for row in seen_table(root).read().to_dicts()}
    assert (rows["ada/mint"]["stale_since"], rows["ada/mint"]["retired_at"]) == (NOW, None)
    assert held(root) == {"ada/sage"}


def test_a_listing_and_a_dropped_row_with_half_a_character_are_told_in_characters(tmp_path: Path) -> None:
    root = Root(tmp_path)
    report = crawled(
        root, document("mint"), Listing("given", f"b{HALF}"), Dropped(f"c{HALF}", "given", "malformed", HALF)
    )
    assert report.state == "complete"
    assert dropped(root) == {"b\ufffd": "unreadable", "c\ufffd": "malformed"}


def test_an_error_that_nobody_foresaw_ends_its_source_and_one_of_the_root_the_run(tmp_path: Path) -> None:
    root = Root(tmp_path)
    report = crawled(root, document("mint"), RecursionError("too deep"))
    assert (report.state, report.failed) == ("partial", {"unforeseen": 1})
    assert "RecursionError: too deep" in str(report.message)
    assert held(root) == {"ada/mint"}
    with pytest.raises(OSError, match="No space left"):
        crawled(root, document("mint"), OSError(28, "No space left on device"))
