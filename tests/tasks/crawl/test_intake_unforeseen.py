"""One bad value costs its row, one error that nobody foresaw its source; all else is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from storage.root import Root
from storage.schemas import Dropped, Listing, RawDocument
from storage.state import seen_table
from tasks.crawl.collect import SourceReport, collect
from tasks.crawl.source.base import Item, Source

NOW = datetime(2026, 5, 1, 2, tzinfo=UTC)
HALF = "\ud83d"  # the first half of a surrogate pair


class Given(Source):
    """A source of items made here; an exception among them is raised when its turn comes."""

    spec = "given"

    def __init__(self, *items: Item | Exception) -> None:
        self._items = items

    def version(self) -> None:
        """Return None: it is always read."""

    def read(self) -> Iterator[Item]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item


def document(name: str, **fields: object) -> RawDocument:
    return RawDocument(
        doc_id=f"ada/{name}", source="given", content=b"Pick it.", size=8, raw_hash=name, **fields
    )  # type: ignore[arg-type]


def crawled(root: Root, *items: Item | Exception, run: str = "one") -> SourceReport:
    return collect(Given(*items), root, run_id=run, now=NOW)


def dropped(root: Root, run: str = "one") -> dict[str, str]:
    rows = pl.read_parquet(root.at(f"dropped/{run}.parquet"))
    return dict(rows.select("doc_id", "reason").iter_rows())


def held(root: Root) -> set[str]:
    return set(seen_table(root).read().filter(pl.col("stale_since").is_null())["doc_id"])


@pytest.mark.parametrize(
    "fields",
    [
        {"stars": 10**30},
        {"stars": 1e300},
        {"repo": HALF},
        {"repo_licence": HALF},
        {"tags": (HALF,)},
        {"url": 7},
        {"size": 2**63},
    ],
    ids=str,
)
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


def test_a_document_that_was_there_before_stays_and_is_stale(tmp_path: Path) -> None:
    root = Root(tmp_path)
    crawled(root, document("mint"), document("sage"))
    changed = document("mint", stars=10**30)
    object.__setattr__(changed, "raw_hash", "other")

    crawled(root, changed, document("sage"), run="two")

    rows = {row["doc_id"]: row for row in seen_table(root).read().to_dicts()}
    assert rows["ada/mint"]["stale_since"] == NOW
    assert rows["ada/mint"]["retired_at"] is None
    assert held(root) == {"ada/sage"}


def test_a_listing_and_a_dropped_row_with_half_a_character_are_told_in_characters(tmp_path: Path) -> None:
    root = Root(tmp_path)

    report = crawled(
        root, document("mint"), Listing("given", f"b{HALF}"), Dropped(f"c{HALF}", "given", "malformed", HALF)
    )

    assert report.state == "complete"
    assert dropped(root) == {"b\ufffd": "unreadable", "c\ufffd": "malformed"}


def test_an_error_that_nobody_foresaw_ends_its_source_alone_and_names_itself(tmp_path: Path) -> None:
    root = Root(tmp_path)

    report = crawled(root, document("mint"), RecursionError("too deep"))

    assert (report.state, report.failed) == ("partial", {"unforeseen": 1})
    assert "RecursionError: too deep" in str(report.message)
    assert held(root) == {"ada/mint"}


def test_an_error_of_the_root_is_no_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        crawled(Root(tmp_path), document("mint"), OSError(28, "No space left on device"))
