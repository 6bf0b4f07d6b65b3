from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from storage.errors import WrongInput
from tasks.evaluate.corpus.read import read_categories


def lines(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def test_categories_come_from_parquet_and_json_lines_and_the_first_counts(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": ["a", "b", "c"], "content": ["", "", ""], "category": ["food", None, "  "]})
    frame.write_parquet(tmp_path / "one.parquet")
    pl.DataFrame({"doc_id": ["z"], "content": [""]}).write_parquet(tmp_path / "bare.parquet")
    other = lines(
        tmp_path / "two.jsonl",
        {"doc_id": "a", "content": "", "category": "metal"},
        {"id": "c", "content": "", "category": " wood "},
        {"doc_id": "d", "content": "", "category": 7},
        {"doc_id": "e", "content": ""},
    )

    found = read_categories([tmp_path / "one.parquet", tmp_path / "bare.parquet", other])

    assert found == {"a": "food", "c": "wood"}


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{\n", "utf-8")

    with pytest.raises(WrongInput, match=r"bad\.jsonl:1"):
        read_categories([tmp_path / "bad.jsonl"])
