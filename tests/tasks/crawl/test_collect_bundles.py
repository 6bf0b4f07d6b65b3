"""The files beside a SKILL.md are kept in raw parts, whatever source they come from."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS
from storage.state import listed_table, seen_table
from tasks.crawl.collect import collect
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import open_source
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.tasks.crawl.conftest import WorkTree

BASIL = "beds/basil"
BUNDLE = {
    "scripts/water.sh": b"#!/bin/sh\necho water\n",
    "assets/leaf.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40,
    "docs/caf\u00e9 au lait.md": b"# Notes\n",
    "empty.txt": b"",
}
FILES = {
    f"{BASIL}/SKILL.md": grows("basil"),
    **{f"{BASIL}/{path}": content for path, content in BUNDLE.items()},
}
SPEC = "github:ann/garden"


@pytest.fixture
def garden(world: World) -> Repository:
    repository = world.repository("ann/garden")
    repository.commit({**FILES, "beds/chard/SKILL.md": grows("chard")})
    return repository


def row(root: Root, name: str = "basil") -> dict[str, Any]:
    """Return the newest raw row of a skill."""
    (seen,) = (r for r in seen_table(root).read().to_dicts() if r["doc_id"].endswith(f"/{name}"))
    return read_frame(root, seen["raw_part"], RAW_DOCUMENTS).filter(doc_id=seen["doc_id"]).to_dicts()[-1]


def kept(root: Root, name: str = "basil") -> dict[str, bytes]:
    return {file["path"]: file["content"] for file in row(root, name)["contents"]}


@pytest.mark.parametrize("kind", ["dir", "git", "github"])
def test_every_source_keeps_the_bytes_of_a_bundle(
    kind: str, worktree: WorkTree, garden: Repository, crawler: Crawler
) -> None:
    for path, content in FILES.items():
        worktree.write(path, content)
    worktree.commit()
    spec = {"dir": f"dir:{worktree.path}", "git": worktree.spec, "github": SPEC}[kind]
    assert crawler.crawl(spec).state == "complete"
    assert kept(crawler.root) == BUNDLE
    assert {f["path"]: (f["size"], f["sha256"]) for f in row(crawler.root)["files"]} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in BUNDLE.items()
    }


def test_an_unchanged_night_brings_no_file_again(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(SPEC)
    before = crawler.root.files("raw")
    market.clear_requests()
    garden.commit({"README.md": b"Another commit, and the same skills.\n"})
    assert crawler.crawl(SPEC).unchanged == 2
    assert {r.kind for r in market.requests}.isdisjoint({"archive", "raw"})
    assert crawler.root.files("raw") == before


def test_a_file_that_changes_alone_changes_its_skill_alone(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(SPEC)
    garden.commit({f"{BASIL}/scripts/water.sh": b"#!/bin/sh\necho less water\n"})
    report = crawler.crawl(SPEC)
    assert (report.changed, report.unchanged) == (1, 1)
    assert kept(crawler.root)["scripts/water.sh"] == b"#!/bin/sh\necho less water\n"


def test_a_bundle_that_was_only_listed_is_read_when_its_repository_is_looked_at(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    crawler.crawl(SPEC)
    _as_listed_only(crawler.root)
    report = crawler.crawl(SPEC)
    assert (report.state, report.failed) == ("complete", {})
    assert kept(crawler.root) == BUNDLE
    market.clear_requests()
    assert crawler.crawl(SPEC).unchanged == 2
    assert [(r.kind, r.status) for r in market.requests] == [("commit", 304)]


def _as_listed_only(root: Root) -> None:
    """Make the notes of a repository those of a version that kept no bytes."""
    table = listed_table(root)
    rows = table.read()
    table.replace(
        set(rows["repository"]), rows.with_columns(digest=pl.col("digest").str.replace(r"^.*:", ""))
    )


def test_other_limits_read_a_repository_again_when_it_is_looked_at(
    garden: Repository, crawler: Crawler
) -> None:
    crawler.crawl(SPEC)
    report = crawler.crawl(SPEC, keep_files=1)
    assert (report.changed, report.unchanged) == (1, 1)
    assert sorted(kept(crawler.root)) == [min(BUNDLE)]


def test_other_limits_read_a_folder_again(tmp_path: Path) -> None:
    shelf, root = tmp_path / "shelf", Root(tmp_path / "root")
    for path, content in FILES.items():
        (shelf / path).parent.mkdir(parents=True, exist_ok=True)
        (shelf / path).write_bytes(content)
    outcomes = []
    for night, most in enumerate((0, 0, 512, 1), start=1):
        now = datetime(2026, 1, night, tzinfo=UTC)
        settings = CrawlSettings(keep_files=most)
        source = open_source(f"dir:{shelf}", CrawlContext(root, now, settings=settings))
        report = collect(source, root, run_id=f"r{night}", now=now, settings=settings)
        outcomes.append((report.new, report.changed, sorted(kept(root))))
    first = min(BUNDLE)
    assert outcomes == [(1, 0, []), (0, 0, []), (0, 1, sorted(BUNDLE)), (0, 1, [first])]
    assert "bundle.not-kept" in {finding["code"] for finding in row(root)["findings"]}
