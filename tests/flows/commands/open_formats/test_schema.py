from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import NoneType
from typing import get_args

import polars as pl
import pytest

from flows.commands.open_formats.schema import schema_told, tables
from storage import schemas
from storage.lance.tables import TABLES
from storage.parquet import read_frame
from storage.root import Root
from storage.state import table_of
from tests.support.command import Ask
from tests.support.paths import PROJECT
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

README = (PROJECT / "storage/README.md").read_text("utf-8")
PINNED = json.loads(Path(__file__).with_name("schemas.json").read_text("utf-8"))
RECORDS = {
    "documents": schemas.Document, "nodes": schemas.Node, "edges": schemas.Edge, "dropped": schemas.Dropped,
    "raw/documents": schemas.RawDocument, "raw/listings": schemas.Listing,
}  # fmt: skip


def test_each_column_has_its_sentence_and_each_sentence_its_column() -> None:
    given = tomllib.loads((PROJECT / "storage/data/columns.toml").read_text("utf-8"))
    shared, known = given.pop("shared"), tables()
    assert given.keys() == known.keys()
    for name, own in given.items():
        assert own.keys() - known[name].names() == {"holds"}, name
        assert set(known[name]) <= own.keys() | shared.keys(), name
    used = {column for name, schema in known.items() for column in schema if column not in given[name]}
    assert used == shared.keys()


@pytest.mark.parametrize("name", RECORDS)
def test_a_column_may_be_null_where_its_field_may_be_none_or_is_younger(name: str) -> None:
    hints = schemas._hints(RECORDS[name])
    told = {c["column"]: c for c in schema_told(name)["tables"][0]["columns"] if c["column"] in hints}
    may = {column: NoneType in get_args(hint) for column, hint in hints.items()}
    assert {c: told[c]["nullable"] for c in hints} == {c: may[c] or told[c]["since"] > 1 for c in hints}


def test_what_a_root_holds_is_what_is_told_of_it(served_bakery: SkillRoot, storied: SkillRoot) -> None:
    known, seen = tables(), set()
    for root in (served_bakery.root, storied.root):
        for file in root.files("", ".parquet"):
            if (table := table_of(file)) in known and not file.startswith("vectors/"):
                seen.add(table)
                _require_nulls(table, read_frame(root, file, known[table]))
        tables_at = json.loads(root.read("state/served.json"))
        for name in {"skills", "nodes"} & set(TABLES):
            frame = pl.from_arrow(open_at(connect(root), name, tables_at[name]).to_arrow())
            assert isinstance(frame, pl.DataFrame)
            assert frame.columns == known[f"lance/{name}"].names()
            _require_nulls(f"lance/{name}", frame)
    assert seen >= {"documents", "nodes", "edges", "raw/documents", "state/seen", "state/refined"}


def _require_nulls(table: str, frame: pl.DataFrame) -> None:
    columns = schema_told(table)["tables"][0]["columns"]
    wrong = [c["column"] for c in columns if not c["nullable"] and frame[c["column"]].null_count()]
    assert wrong == [], table


def test_what_was_written_yesterday_is_read_and_whatever_changes_raises_the_version() -> None:
    """After a change that is meant: raise SCHEMA_VERSION, and write `schemas.json` anew from `tables()`."""
    now = {name: {c: str(kind) for c, kind in schema.items()} for name, schema in tables().items()}
    for name, columns in PINNED["tables"].items():
        assert columns.items() <= now[name].items(), f"{name}: a column was removed, renamed or retyped"
        if PINNED["schema_version"] == schemas.SCHEMA_VERSION:
            assert now[name] == columns, f"{name}: a column was added; files without it would be refused"


def test_it_is_printed_in_three_forms(ask: Ask) -> None:
    (listed,) = re.findall(r"^```\n(documents .*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert ask("schema").stdout == listed
    assert "text: string, since schema version 1" in ask("schema", "nodes").stdout
    assert "| `size` | `int64` | bytes | no | 1 |" in ask("schema", "--markdown").stdout
    assert ask.told("schema", "edges") == schema_told("edges")
    for wrong, said in (("node", "near it are nodes"), ("edges --json --markdown", "two forms")):
        assert said in ask.refused("schema", *wrong.split())


def test_a_root_is_read_by_readmes_lines(served_bakery: SkillRoot, tmp_path: Path) -> None:
    (code,) = re.findall(r"<!-- read -->\n```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (tmp_path / "data").symlink_to(served_bakery.root.folder)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "node_type" in done.stdout
    assert Root(served_bakery.root.uri).exists("state/served.json")
