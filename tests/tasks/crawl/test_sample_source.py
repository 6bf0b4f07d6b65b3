from __future__ import annotations

from pathlib import Path

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.directory import DirectorySource
from tasks.crawl.sample import open_source


def test_any_other_spec_names_its_own_source(tmp_path: Path) -> None:
    assert isinstance(open_source(Root(tmp_path), f"dir:{tmp_path}"), DirectorySource)
    assert list(tmp_path.iterdir()) == []


def test_the_sample_is_a_repository_below_the_root_the_same_below_any_root(tmp_path: Path) -> None:
    one, other = open_source(Root(tmp_path / "a"), "sample"), open_source(Root(tmp_path / "b"), "sample")
    documents = [row for row in one.read() if isinstance(row, RawDocument)]
    assert 24 <= len(documents) <= 36
    assert {d.doc_id.partition("/marketplace")[0] for d in documents} == {"local"}
    assert documents == [row for row in other.read() if isinstance(row, RawDocument)]
    assert one.version() == other.version() == documents[0].commit
