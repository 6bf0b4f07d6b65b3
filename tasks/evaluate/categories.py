"""The categories that listings give to skills, read off the corpora that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from storage.jsonl import read_lines
from storage.root import Root
from storage.state import documents_table


def read_categories(paths: Iterable[Path]) -> dict[str, str]:
    """Return the category of each skill that has one, by doc_id; of a skill in two corpora the first.

    Args:
        paths: Corpora as `read_skills` takes them; their column or key `category`, if there is one.

    Raises:
        WrongInput: A file of JSON lines cannot be read.
    """
    found: dict[str, str] = {}
    for path in paths:
        for doc_id, category in _of(path):
            if category and category.strip():
                found.setdefault(doc_id, category.strip())
    return found


def _of(path: Path) -> Iterator[tuple[str, str | None]]:
    if path.is_dir():
        yield from documents_table(Root(path)).read(columns=["doc_id", "category"]).iter_rows()
    elif path.suffix == ".parquet":
        columns = pl.read_parquet_schema(path)
        if "category" in columns:
            key = "doc_id" if "doc_id" in columns else "id"
            yield from pl.read_parquet(path, columns=[key, "category"]).cast(pl.String).iter_rows()
    else:
        for _, record in read_lines(path, "{doc_id, content}"):
            category = record.get("category")
            if isinstance(category, str):
                yield str(record.get("doc_id", record.get("id"))), category
