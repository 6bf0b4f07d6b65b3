"""Hostile bundles, from the crawl to blobs: nothing is written elsewhere, and what is wrong is a finding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.blobs import BlobStore
from storage.state import documents_table
from tasks.crawl.git.sample import make_repository
from tasks.crawl.git.source import GitSource
from tasks.crawl.github.archive import Archive
from tasks.crawl.source.bundle import plan
from tasks.crawl.source.content import DEFAULT_LIMITS
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source.parquet_file import ParquetSource
from tasks.crawl.source.protocol import Source
from tasks.crawl.source.skill import read_skill
from tests.support.marketplace import malice
from tests.support.roots.nights import HandSource, Nights

TEXT = (
    b"---\nname: bait\ndescription: Ties a knot that holds.\n---\n# Knots\n\nWet the line before you pull.\n"
)


@pytest.fixture
def nights(tmp_path: Path) -> Iterator[Nights]:
    """A root that is the only place to be written to."""
    made = Nights(tmp_path / "inside" / "root")
    yield made
    assert {p.name for p in (tmp_path / "inside").iterdir()} == {"root"}
    # Below it nothing but blobs is called by anything that a bundle says.
    store = BlobStore(made.root)
    assert made.root.files("blobs") == [f"blobs/{d[:2]}/{d}" for d in store.digests()]
    assert store.unreadable(store.digests()) == {}


def refined(nights: Nights, source: Source) -> tuple[dict[str, bytes], set[str]]:
    """Return the files kept of the one skill that a source brings, and the codes of its bundle's findings."""
    nights.run(source)
    (row,) = documents_table(nights.root).read().filter(pl.col("name") == "bait").to_dicts()
    store = BlobStore(nights.root)
    kept = {blob["path"]: store.read(blob["sha256"]) for blob in row["blobs"]}
    return kept, {f["code"] for f in row["findings"] if f["code"].startswith("bundle.")}


def test_paths_that_lead_elsewhere_are_named(nights: Nights, tmp_path: Path) -> None:
    paths = ["../../../up.sh", "/etc/cron.d/job", "a/../../b", "C:\\x", "a\0b", "fine.sh"]
    rows = [[{"path": path, "content": b"echo hello\n"} for path in paths]]
    kind = pa.list_(pa.struct([("path", pa.string()), ("content", pa.binary())]))
    table = {"id": ["o/r/bait"], "content": [TEXT], "files": pa.array(rows, kind)}
    pq.write_table(pa.table(table), tmp_path / "skills.parquet")
    kept, codes = refined(nights, ParquetSource(str(tmp_path / "skills.parquet")))
    # What is no part of a path on any system is a name like others: it never becomes one.
    assert set(kept) == {"C:\\x", "a\0b", "fine.sh"}
    assert codes == {"bundle.unreadable"}


def test_links_out_of_the_folder_are_named_and_not_followed(nights: Nights, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(b"not yours")
    folder = tmp_path / "market" / "bait"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(TEXT)
    (folder / "secret.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to("../..")
    assert refined(nights, DirectorySource(str(tmp_path / "market"))) == ({}, {"bundle.symlink"})
    spec = make_repository(tmp_path / "market", tmp_path / "repository.git")
    assert refined(nights, GitSource(spec.removeprefix("git+"))) == ({}, {"bundle.symlink"})


def test_names_that_no_file_system_holds_or_takes_for_one_are_named(nights: Nights, tmp_path: Path) -> None:
    files = {"n" * 300: b"1", "Run.sh": b"2", "run.sh": b"3"}
    rows = [[{"path": path, "content": content} for path, content in files.items()]]
    table = {"id": ["o/r/bait"], "content": [TEXT], "files": rows}
    pq.write_table(pa.table(table), tmp_path / "skills.parquet")
    found = refined(nights, ParquetSource(str(tmp_path / "skills.parquet")))
    assert found == (files, {"bundle.long-name", "bundle.same-name"})


def test_five_thousand_files_are_named_and_none_is_kept(nights: Nights, tmp_path: Path) -> None:
    folder = tmp_path / "market" / "bait"
    (folder / "crumbs").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(TEXT)
    for number in range(5000):
        (folder / "crumbs" / str(number)).write_bytes(b"x")
    assert refined(nights, DirectorySource(str(tmp_path / "market"))) == ({}, {"bundle.too-large"})


def test_a_thousand_files_are_listed_and_the_first_of_them_kept(nights: Nights, tmp_path: Path) -> None:
    folder = tmp_path / "market" / "bait"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(TEXT)
    for number in range(1000):
        (folder / f"{number:04}").write_bytes(b"%d" % number)
    kept, codes = refined(nights, DirectorySource(str(tmp_path / "market")))
    assert list(kept) == [f"{number:04}" for number in range(512)]
    assert codes == {"bundle.not-kept"}


@pytest.mark.parametrize(
    ("size", "code"), [(20_000_000, "bundle.not-kept"), (60_000_000, "bundle.too-large")]
)
def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_named(
    nights: Nights, tmp_path: Path, size: int, code: str
) -> None:
    (tmp_path / "bomb.zip").write_bytes(malice.bundle_bomb(size))
    with Archive(tmp_path / "bomb.zip") as archive:
        (skill,) = plan(archive.entries(), "o/r", "hand")
        document = read_skill(skill, archive.read, DEFAULT_LIMITS, "hand")  # type: ignore[arg-type]
    nights.run(HandSource("hand", document))
    (row,) = documents_table(nights.root).read().to_dicts()
    assert (row["blobs"], code in {f["code"] for f in row["findings"]}) == ([], True)


def test_an_archive_in_a_bundle_is_a_file_and_is_never_unpacked(nights: Nights, tmp_path: Path) -> None:
    folder = tmp_path / "market" / "bait"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(TEXT)
    packed = malice.climbing()
    (folder / "assets.zip").write_bytes(packed)
    kept, codes = refined(nights, DirectorySource(str(tmp_path / "market")))
    assert ({path: hashlib.sha256(c).hexdigest() for path, c in kept.items()}, codes) == (
        {"assets.zip": hashlib.sha256(packed).hexdigest()},
        set(),
    )
    assert not list(tmp_path.rglob("climbed.txt"))
