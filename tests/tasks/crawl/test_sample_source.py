from __future__ import annotations

from pathlib import Path

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.sample import resolve_sample
from tasks.crawl.source import parse_spec


def test_a_spec_is_its_own_address_but_for_the_sample(tmp_path: Path) -> None:
    assert resolve_sample(Root(tmp_path), "dir:x") == "dir:x"
    assert list(tmp_path.iterdir()) == []


def test_the_sample_is_a_repository_below_the_root_the_same_each_time(tmp_path: Path) -> None:
    spec = resolve_sample(Root(tmp_path), "sample")
    assert spec == f"git+{(tmp_path / 'state/sample/marketplace').as_uri()}"
    source = parse_spec(spec)
    version = source.version()
    documents = [row for row in source.read() if isinstance(row, RawDocument)]
    assert 24 <= len(documents) <= 36
    assert resolve_sample(Root(tmp_path), "sample") == spec
    assert source.version() == version
