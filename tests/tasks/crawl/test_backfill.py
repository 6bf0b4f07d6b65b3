from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from storage.errors import WrongInput
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS
from storage.state import seen_table, write_run
from tasks.crawl.backfill import day_of, days_crawled, replay_plan, replay_seen
from tasks.crawl.collect import collect
from tasks.crawl.source.base import Gone, Unchanged
from tests.support.roots.nights import FIRST_NIGHT, HandSource, Nights, skill


def test_a_range_of_days_holds_both_ends_and_no_day_without_a_crawl(nights: Nights) -> None:
    for text in ("one", "two", "three"):
        nights.crawl(HandSource("dir:d", skill("a", text)))
    assert days_crawled(nights.root, "2026-03-02", "2026-03-03") == ["2026-03-02", "2026-03-03"]
    assert days_crawled(nights.root, "2026-03-04", "2026-03-04") == ["2026-03-04"]
    assert days_crawled(nights.root, "2026-02-01", "2026-03-01") == []


def test_a_plan_tells_how_much_each_day_reads_and_that_nothing_is_rebuilt_yet(nights: Nights) -> None:
    for text in ("one", "two"):
        nights.crawl(HandSource("dir:d", skill("a", text)))
    before = sorted(nights.folder.rglob("*"))
    plan = replay_plan(nights.root, ["2026-03-02", "2026-03-03"])
    assert [row["raw parts"] for row in plan] == [1, 2]
    assert {row["documents rebuilt before"] for row in plan} == {0}
    assert sorted(nights.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("2026-03-02", "2026-03-01", "lies before"),
        ("yesterday", "2026-03-01", "YYYY-MM-DD"),
        ("2026-03-01", "2026-02-30", "YYYY-MM-DD"),
    ],
)
def test_what_is_no_range_of_days_is_named(nights: Nights, start: str, end: str, says: str) -> None:
    with pytest.raises(WrongInput, match=says):
        days_crawled(nights.root, start, end)


def replayed(nights: Nights, day: str) -> dict[tuple[str, str], str]:
    """Return the text of each document and source as of a day."""
    into = Root(nights.folder / "backfill" / day)
    size = replay_seen(nights.root, day, into)
    rows = seen_table(into).read()
    assert rows.height == size
    found = {}
    for row in rows.to_dicts():
        part = read_frame(nights.root, row["raw_part"], RAW_DOCUMENTS)
        content = dict(part.select("doc_id", "content").iter_rows())[row["doc_id"]]
        found[row["doc_id"], row["source"]] = content.decode().splitlines()[-1]
    return found


def test_a_day_has_the_newest_text_fetched_by_its_end(nights: Nights) -> None:
    nights.crawl(HandSource("dir:d", skill("a", "one"), skill("b", "one")))
    nights.crawl(HandSource("dir:d", skill("a", "two"), skill("b", "one"), skill("c", "two")))
    nights.crawl(HandSource("git+x", skill("e", "three")))
    assert {day_of(f) for f in nights.raw_parts()} == {"2026-03-02", "2026-03-03", "2026-03-04"}
    assert replayed(nights, "2026-03-01") == {}
    assert replayed(nights, "2026-03-02") == {("a", "dir:d"): "one", ("b", "dir:d"): "one"}
    third = {("a", "dir:d"): "two", ("b", "dir:d"): "one", ("c", "dir:d"): "two"}
    assert replayed(nights, "2026-03-03") == third
    assert replayed(nights, "2026-03-31") == {**third, ("e", "git+x"): "three"}


def test_within_a_day_the_later_fetch_counts_whatever_its_run_is_called(nights: Nights) -> None:
    for run_id, hours, text in (("z", 1, "early"), ("a", 2, "late"), ("m", 0, "first")):
        source, now = HandSource("dir:d", skill("a", text)), FIRST_NIGHT + timedelta(hours=hours)
        collect(source, nights.root, run_id=run_id, now=now)
    assert replayed(nights, "2026-03-01") == {("a", "dir:d"): "late"}
    row = seen_table(Root(nights.folder / "backfill/2026-03-01")).read().row(0, named=True)
    assert (row["first_seen_at"], row["last_seen_at"]) == (FIRST_NIGHT, FIRST_NIGHT + timedelta(hours=2))


def test_replaying_again_changes_nothing_but_what_raw_parts_no_longer_hold(nights: Nights) -> None:
    nights.crawl(HandSource("dir:d", skill("a", "one")))
    nights.crawl(HandSource("git+x", skill("b", "two")))
    both = replayed(nights, "2026-03-03")
    assert replayed(nights, "2026-03-03") == both
    nights.root.delete("raw/documents/date=2026-03-03")
    assert replayed(nights, "2026-03-03") == {("a", "dir:d"): "one"}


def test_the_past_is_refined_out_of_the_root_it_was_crawled_into(nights: Nights) -> None:
    nights.run(HandSource("dir:d", skill("a", "Feed it once."), skill("b", "Feed it once.")))
    nights.run(HandSource("dir:d", skill("a", "Feed it twice.")))
    before = nights.times("documents", "state")
    past = Nights(nights.folder / "backfill/past")
    replay_seen(nights.root, "2026-03-02", past.root)
    assert past.refine(raw=nights.root) == {"documents": 1, "duplicate": 1}
    assert past.plan().todo == 0
    assert nights.times("documents", "state") == before


# What had left its source


class ToldSource(HandSource):
    """A source that says itself what is gone."""

    exhaustive = False


def texts_of(nights: Nights, *days: int) -> list[str | None]:
    """Return the text that `a` is replayed with as of each day of March, None where it is left out."""
    return [replayed(nights, f"2026-03-{day:02d}").get(("a", "s")) for day in days]


def leaves(nights: Nights, reason: Literal["retired", "withdrawn"] = "retired") -> None:
    """Let `a` leave in a night of its own, whose record tells when that was."""
    nights.crawl(ToldSource("s", Gone(("a",), reason, "HTTP 451")))
    write_run(nights.root, {"run_id": nights.run_id, "started_at": nights.now.isoformat()})


@pytest.mark.parametrize("reason", ["retired", "withdrawn"])
def test_what_left_is_there_until_the_day_it_left(
    nights: Nights, reason: Literal["retired", "withdrawn"]
) -> None:
    nights.crawl(ToldSource("s", skill("a", "one")))
    nights.crawl(ToldSource("s", skill("b")))
    leaves(nights, reason)
    assert texts_of(nights, 1, 2, 3, 4, 5) == [None, "one", "one", None, None]
    assert replayed(nights, "2026-03-05") == {("b", "s"): "Let it rise."}


def test_what_a_whole_reading_misses_has_left_that_source_alone(nights: Nights) -> None:
    nights.run(HandSource("s", skill("a", "one"), skill("b")))
    nights.run(HandSource("s", skill("b")))
    nights.crawl(HandSource("other", skill("a", "two")))
    assert texts_of(nights, 2, 3, 4) == ["one", None, None]
    found = replayed(nights, "2026-03-04")
    assert [text for (doc_id, source), text in found.items() if source == "other"] == ["two"]
    assert ("a", "other") not in found, "the id stays with the source that brought it first"


def test_what_came_back_changed_is_there_from_then_on(nights: Nights) -> None:
    nights.crawl(ToldSource("s", skill("a", "one")))
    leaves(nights)
    nights.crawl(ToldSource("s"))
    nights.crawl(ToldSource("s", skill("a", "two")))
    nights.crawl(ToldSource("s"))
    leaves(nights)
    assert texts_of(nights, 2, 3, 4, 5, 6, 7) == ["one", None, None, "two", "two", None]


def test_what_came_back_as_it_was_is_there_at_the_latest_when_it_was_seen_last(nights: Nights) -> None:
    nights.crawl(ToldSource("s", skill("a", "one")))
    leaves(nights)
    for _ in range(3):
        nights.crawl(ToldSource("s", Unchanged(("a",))))
    assert texts_of(nights, 2, 3, 5, 6, 7) == ["one", None, None, "one", "one"]


def test_a_run_without_a_record_tells_by_its_name_when_it_was(nights: Nights) -> None:
    nights.crawl(ToldSource("s", skill("a", "one")))
    gone = ToldSource("s", Gone(("a",), "retired", "renamed"))
    collect(gone, nights.root, run_id="20260303T020000-5eed", now=nights.now + timedelta(days=1))
    back = ToldSource("s", skill("a", "two"))
    collect(back, nights.root, run_id="back", now=nights.now + timedelta(days=3))
    assert texts_of(nights, 2, 3, 4, 5) == ["one", None, None, "two"]
