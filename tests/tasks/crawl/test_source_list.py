from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.errors import SourceError
from storage.root import Root
from storage.state import read_sources, seen_table, write_run, write_source
from tasks.crawl.backfill import recover_seen
from tasks.crawl.source_list import known_sources, list_sources, remove_source, restore_sources, specs_to_read
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World
from tests.support.roots.nights import HandSource, Nights, skill

HERBS, TREES, TYPO = "dir:/herbs", "dir:/trees", "dir:/hrebs"
ABSENT = SourceError(TYPO, "missing", "there is no such folder")


def held(root: Root) -> set[tuple[str, str]]:
    rows = seen_table(root).read().filter(pl.col("retired_at").is_null())
    return set(rows.select("doc_id", "source").iter_rows())


def grown(spec: str, *names: str, version: str | None = None) -> HandSource:
    return HandSource(spec, *(skill(name, f"Water the {name}.") for name in names), version=version)


def older(root: Root) -> None:
    """Leave `state/sources.json` as a Skillery without a list wrote it."""
    records = {
        spec: {key: value for key, value in record.items() if key not in ("in_list", "retired_at")}
        for spec, record in read_sources(root).items()
    }
    root.write_json("state/sources.json", {"sources": records})


def night(run_id: str, specs: list[str], sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of a run, with the keys that are read of it here."""
    return {"run_id": run_id, "state": "complete", "flow": "nightly", "specs": specs, "sources": sources}


def test_a_root_that_knows_no_source_reads_the_sample(nights: Nights) -> None:
    assert specs_to_read(nights.root) == ["sample"]
    remove_source(nights.root, HERBS, nights.now, retire=False)
    assert specs_to_read(nights.root) == [], "a list that an operator emptied stays empty"


def test_what_is_added_is_read_from_then_on_in_the_order_in_which_it_was_added(nights: Nights) -> None:
    assert list_sources(nights.root, [TREES]) == {TREES: None}
    assert list_sources(nights.root, [HERBS, TREES]) == {HERBS: None}
    assert specs_to_read(nights.root) == [TREES, HERBS]
    assert known_sources(nights.root)[HERBS] == {
        "state": "unread", "in_list": True, "retired_at": None, "documents": 0,
    }  # fmt: skip
    before = list_sources(nights.root, [HERBS, TYPO])
    nights.crawl(HandSource(TYPO, ABSENT))
    restore_sources(nights.root, before)  # what could not be read is as if it had not been given
    assert read_sources(nights.root).keys() == {HERBS, TREES}
    nights.crawl(grown(HERBS, "sage"))
    remove_source(nights.root, HERBS, nights.now, retire=False)
    nights.crawl(grown(HERBS, "sage"))  # a reading leaves the list as it is
    assert (specs_to_read(nights.root), known_sources(nights.root)[HERBS]["documents"]) == ([TREES], 1)


def test_a_removed_source_keeps_its_documents_until_they_are_retired(nights: Nights) -> None:
    list_sources(nights.root, [HERBS, TREES])
    nights.run(grown(HERBS, "sage", "mint"), grown(TREES, "mint", "oak"))
    assert remove_source(nights.root, HERBS, nights.now, retire=False) == 0
    nights.run(grown(TREES, "mint", "oak"))
    assert nights.documents() == ["mint", "oak", "sage"]
    assert remove_source(nights.root, HERBS, nights.now, retire=True) == 2
    assert remove_source(nights.root, HERBS, nights.now + timedelta(days=1), retire=True) == 0
    nights.run(grown(TREES, "mint", "oak"))
    assert nights.documents() == ["mint", "oak"], "another source has mint too"
    assert set(nights.dropped().filter(pl.col("reason") == "retired")["doc_id"]) == {"sage"}
    assert specs_to_read(nights.root) == [TREES]


def test_an_interrupted_retirement_is_completed_by_the_same_call(nights: Nights) -> None:
    list_sources(nights.root, [HERBS])
    nights.run(grown(HERBS, "sage", "mint", "dill"))
    remove_source(nights.root, HERBS, nights.now, retire=True)
    table = seen_table(nights.root)
    never = pl.lit(None, pl.Datetime("us", "UTC"))
    undone = table.read().filter(doc_id="mint").with_columns(retired_at=never)
    table.replace(["mint"], undone)
    assert remove_source(nights.root, HERBS, nights.now + timedelta(hours=1), retire=True) == 1
    assert held(nights.root) == set()
    for file in nights.root.files("state/seen"):  # of a file that differs from its note, as after a kill
        recover_seen(nights.root, file)
    assert held(nights.root) == set()
    list_sources(nights.root, [HERBS])
    assert {doc_id for doc_id, _ in held(nights.root)} == {"sage", "mint", "dill"}


def test_a_source_that_is_added_again_has_its_documents_but_for_those_it_had_retired(nights: Nights) -> None:
    list_sources(nights.root, [HERBS])
    nights.run(grown(HERBS, "sage", "mint"))
    nights.run(grown(HERBS, "sage", version="as it is"))
    nights.night += 1
    remove_source(nights.root, HERBS, nights.now, retire=True)
    nights.refine()
    assert nights.documents() == []
    assert list_sources(nights.root, [HERBS])[HERBS] is not None
    unread = grown(HERBS, "sage", version="as it is")
    nights.run(unread)
    assert (nights.documents(), unread.reads) == (["sage"], 0)


def test_a_removed_source_that_cannot_be_read_when_it_is_given_again_stays_removed(nights: Nights) -> None:
    list_sources(nights.root, [HERBS])
    nights.crawl(grown(HERBS, "sage"))
    remove_source(nights.root, HERBS, nights.now, retire=True)
    before, removed = list_sources(nights.root, [HERBS]), read_sources(nights.root)
    nights.crawl(HandSource(HERBS, SourceError(HERBS, "missing", "there is no such folder")))
    restore_sources(nights.root, before)
    assert not known_sources(nights.root)[HERBS]["in_list"]
    assert removed[HERBS]["in_list"]
    assert held(nights.root) == set()


def test_of_an_older_root_every_source_that_was_read_is_listed_but_a_mistyped_one(nights: Nights) -> None:
    nights.crawl(grown(HERBS, "sage"))
    nights.crawl(HandSource(TYPO, ABSENT))
    nights.crawl(grown(TREES, "oak"))
    older(nights.root)
    write_run(nights.root, night("20260301T020000-aaaaaa", [TREES], [{"source": TREES, "state": "complete"}]))
    was = json.dumps(read_sources(nights.root))
    assert specs_to_read(nights.root) == [HERBS, TREES]
    assert known_sources(nights.root)[TYPO]["in_list"] is None
    assert json.dumps(read_sources(nights.root)) == was, "reading the list writes nothing"
    list_sources(nights.root, ["sample"])
    assert specs_to_read(nights.root) == [HERBS, TREES, "sample"]
    assert "in_list" not in read_sources(nights.root)[TYPO]
    remove_source(nights.root, TYPO, nights.now, retire=False)
    assert known_sources(nights.root)[TYPO]["in_list"] is False


def test_what_an_older_run_was_interrupted_before_is_read_by_the_next(nights: Nights) -> None:
    nights.crawl(grown(HERBS, "sage"))
    older(nights.root)
    write_run(nights.root, night("20260301T020000-aaaaaa", [HERBS, TREES], []))
    rebuilt = {**night("20260302T020000-aaaaaa", [HERBS], []), "flow": "full-rebuild"}
    write_run(nights.root, rebuilt)
    assert specs_to_read(nights.root) == [HERBS, TREES]
    list_sources(nights.root)
    assert specs_to_read(nights.root) == [HERBS, TREES]
    write_source(nights.root, HERBS, None)  # documents alone put their source on the list
    nights.crawl(HandSource(TYPO, SourceError(TYPO, "quota", "the day's quota is used up")))
    assert known_sources(nights.root)[TYPO]["state"] == "partial"
    assert sorted(specs_to_read(nights.root)) == [HERBS, TYPO, TREES]


@pytest.mark.parametrize("spec", ["skillsmp", "github:ann/garden", "mcp-registry"])
def test_a_marketplace_that_was_retired_and_is_added_again_is_read_as_it_went_on(
    spec: str, crawler: Crawler, garden: Repository, world: World
) -> None:
    for name in ("basil", "chard"):
        world.list_skill(garden, f"beds/{name}", name=name, description="Grows", updated_at=1_780_000_000)
    world.register("io.github.ann/kettle", description="Boils water")
    list_sources(crawler.root, [spec])
    crawler.crawl(spec)
    had = held(crawler.root)
    remove_source(crawler.root, spec, crawler.now, retire=True)
    assert had
    assert held(crawler.root) == set()
    garden.commit({"beds/basil/SKILL.md": grows("basil", "Pinch out the flowers.")})
    list_sources(crawler.root, [spec])
    report = crawler.crawl(spec, days=8)
    crawler.crawl(spec)
    assert (report.state, report.new) == ("complete", 0)
    assert held(crawler.root) == had
    if spec != "mcp-registry":
        assert b"Pinch out" in (crawler.held()["ann/garden/beds/basil"] or b"")


def test_a_root_holds_its_list_wherever_it_lies(bucket: str) -> None:
    root = Root(bucket)
    list_sources(root, [HERBS, TREES])
    remove_source(root, HERBS, Nights(Path()).now, retire=True)
    assert specs_to_read(Root(bucket)) == [TREES]
