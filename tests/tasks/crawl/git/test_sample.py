from __future__ import annotations

from pathlib import Path

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.git.source import SampleSource


def test_the_sample_is_a_repository_below_the_root_the_same_below_any_root(tmp_path: Path) -> None:
    one, other = SampleSource(Root(tmp_path / "a")), SampleSource(Root(tmp_path / "b"))
    documents = [row for row in one.read() if isinstance(row, RawDocument)]
    assert 24 <= len(documents) <= 36
    assert {d.doc_id.partition("/marketplace")[0] for d in documents} == {"local"}
    assert documents == [row for row in other.read() if isinstance(row, RawDocument)]
    assert one.version() == other.version() == documents[0].commit


def test_no_row_of_the_sample_names_the_root_it_lies_in(tmp_path: Path) -> None:
    rows = list(SampleSource(Root(tmp_path)).read())
    assert {row.source for row in rows} == {"sample"}
    assert str(tmp_path) not in repr([r for r in rows if isinstance(r, RawDocument)])
