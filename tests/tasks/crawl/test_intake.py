"""What sources say of documents they do not yield, and when they are told that all is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from storage.errors import SourceUnavailable
from storage.parquet import read_frame
from storage.schemas import DROPPED, LISTINGS, Listing
from storage.state import seen_table
from storage.tombstones import Tombstone, add_tombstones
from tasks.crawl import raw_parts
from tasks.crawl.source.base import Gone, Missed, RequestUsage, Unchanged
from tests.support.roots.nights import HandSource, Nights, skill

SPEC = "skillsmp"


class Marketplace(HandSource):
    """A source that lists, and says itself what is gone."""

    exhaustive, gives_listings = False, True

    def __init__(self, *items: object, root: Nights | None = None) -> None:
        super().__init__(SPEC, *items)
        self.nights, self.settled_with = root, list[set[str]]()

    def checkpoint(self) -> None:
        if self.nights is not None:
            self.settled_with.append(set(seen_table(self.nights.root).read()["doc_id"]))

    def usage(self) -> RequestUsage:
        return RequestUsage(requests=7, quota_left=43)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "root")


def reasons(nights: Nights) -> list[tuple[str, str]]:
    frames = [read_frame(nights.root, f, DROPPED) for f in nights.root.files("dropped")]
    return pl.concat(frames).select("doc_id", "reason").rows() if frames else []


def test_what_a_list_leaves_out_stays(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a"), skill("b")))
    report = nights.crawl(Marketplace(skill("a")))
    assert (report.listed, report.unchanged, report.retired) == (1, 1, 0)
    assert nights.seen("stale_since") == {("a", SPEC): None, ("b", SPEC): None}


def test_what_is_said_to_be_unchanged_is_touched(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a"), skill("b")))
    report = nights.crawl(Marketplace(Unchanged(("a",))))
    assert (report.listed, report.unchanged) == (1, 1)
    assert nights.seen("last_seen_at")["a", SPEC] == nights.now
    assert nights.seen("last_seen_at")["b", SPEC] < nights.now


def test_what_was_never_seen_cannot_be_unchanged(nights: Nights) -> None:
    report = nights.crawl(Marketplace(Unchanged(("a",))))
    assert (report.unchanged, report.failed) == (0, {"unknown": 1})


def test_what_was_missed_is_stale_until_it_is_met_again(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a"), skill("b")))
    report = nights.crawl(Marketplace(Missed(("a", "x"), "timeout", "no answer")))
    assert (report.state, report.listed, report.failed) == ("complete", 2, {"timeout": 2})
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


def test_what_returns_as_it_was_is_new_again(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a")))
    nights.crawl(Marketplace(Gone(("a",), "retired", "missed too often")))
    report = nights.crawl(Marketplace(Unchanged(("a",))))
    assert (report.new, report.unchanged) == (1, 0)
    assert nights.seen("retired_at") == {("a", SPEC): None}


def test_rows_of_a_list_are_kept_and_not_made_up_of_documents(nights: Nights) -> None:
    rows = [Listing(SPEC, f"id-{n}", name=f"n{n}") for n in range(230)]
    nights.crawl(Marketplace(*rows, skill("a")))
    frames = [read_frame(nights.root, f, LISTINGS) for f in nights.root.files("raw/listings")]
    assert sorted(pl.concat(frames)["source_id"]) == sorted(row.source_id for row in rows)


@pytest.mark.parametrize(("seconds", "settled"), [(0.0, [100, 200, 230, 230]), (60.0, [230])])
def test_a_source_is_told_when_what_it_yielded_is_on_disk_and_never_before(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, seconds: float, settled: list[int]
) -> None:
    monkeypatch.setattr("tasks.crawl.collect._CHECKPOINT_SECONDS", seconds)
    source = Marketplace(*(skill(f"s{n}") for n in range(230)), root=nights)
    nights.crawl(source)
    assert [len(ids) for ids in source.settled_with] == settled


def test_a_source_that_breaks_off_is_told_what_was_kept(nights: Nights) -> None:
    broken = SourceUnavailable(SPEC, "quota", "the day's quota is used up")
    source = Marketplace(skill("a"), broken, root=nights)
    report = nights.crawl(source)
    assert (report.state, report.new, report.failed) == ("partial", 1, {"quota": 1})
    assert source.settled_with[-1] == {"a"}


def test_a_day_without_quota_is_partial_and_makes_nothing_stale(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a")))
    report = nights.crawl(Marketplace(SourceUnavailable(SPEC, "quota", "used up")))
    assert report.state == "partial"
    assert nights.seen("stale_since") == {("a", SPEC): None}


def test_a_marketplace_that_is_blocked_leaves_everything_stale(nights: Nights) -> None:
    nights.crawl(Marketplace(skill("a")))
    assert nights.crawl(Marketplace(SourceUnavailable(SPEC, "html", "a wall"))).state == "failed"
    assert nights.seen("stale_since") == {("a", SPEC): nights.now}


def test_requests_and_quota_are_reported(nights: Nights) -> None:
    report = nights.crawl(Marketplace(skill("a")))
    assert (report.requests, report.quota_left) == (7, 43)


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
