from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.git.sample import SampleSource
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source.remote import SourceOptions
from tasks.crawl.sources import open_source


def test_any_other_spec_names_its_own_source(tmp_path: Path) -> None:
    assert isinstance(
        open_source(f"dir:{tmp_path}", SourceOptions(Root(tmp_path), datetime.now(UTC))), DirectorySource
    )
    assert list(tmp_path.iterdir()) == []


def test_the_sample_is_a_repository_below_the_root_the_same_below_any_root(tmp_path: Path) -> None:
    one, other = SampleSource(Root(tmp_path / "a")), SampleSource(Root(tmp_path / "b"))
    documents = [row for row in one.read() if isinstance(row, RawDocument)]
    assert 24 <= len(documents) <= 36
    assert {d.doc_id.partition("/marketplace")[0] for d in documents} == {"local"}
    assert documents == [row for row in other.read() if isinstance(row, RawDocument)]
    assert one.version() == other.version() == documents[0].commit
