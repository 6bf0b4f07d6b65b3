"""The schema of each table below a root: columns, types, units, and what they mean."""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.lance.tables import TABLES, schema_of
from storage.schemas import SCHEMA_VERSION
from storage.state import SCHEMAS
from storage.usage import FOLDER as USAGE_FOLDER
from storage.usage import USAGE
from tasks.crawl.source.lookup import nearest

_ANY_MODEL = {"dimension": 1}  # whose number no type names
_NULL = re.compile(r"\bnull\b")


def tables() -> dict[str, pl.Schema]:
    """Return the schema of each table by its folder below the root; those of Lance lie below `lance/`."""
    from tasks.evaluate.health.history import HISTORY, SCHEMA  # noqa: PLC0415 (loads what measures)
    from tasks.induce.library.held import SCHEMAS as LEARNED  # noqa: PLC0415 (loads what induces)

    in_lance = {f"lance/{name}": pl.Schema(schema_of(name, _ANY_MODEL)) for name in TABLES}
    return {**SCHEMAS, HISTORY: SCHEMA, USAGE_FOLDER: USAGE, **LEARNED, **in_lance}


def schema_told(name: str | None = None) -> dict[str, Any]:
    """Return what `skillery schema` prints of a table, or all: `schema_version` and `tables` with `columns`.

    Raises `WrongInput` if there is no such table; those with a similar name are named.
    """
    known = tables()
    if name is not None and name not in known:
        near = ", ".join(nearest(name, known))
        said = f"near it are {near}" if near else "`skillery schema` lists all"
        raise WrongInput(f"{name!r} is no table of a root: {said}")
    told = [_table(each, known[each], _meanings()) for each in ([name] if name else known)]
    return {"schema_version": SCHEMA_VERSION, "tables": told}


@functools.cache
def _meanings() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("storage").joinpath("data/columns.toml").read_text("utf-8"))


def _table(name: str, schema: pl.Schema, meanings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    own = meanings[name]
    columns = [
        _column(column, kind, own.get(column) or meanings["shared"][column])
        for column, kind in schema.items()
    ]
    return {"table": name, "holds": own["holds"], "columns": columns}


def _column(name: str, kind: pl.DataType, meaning: Any) -> dict[str, Any]:  # noqa: ANN401 (of TOML)
    said = {"is": meaning} if isinstance(meaning, str) else meaning
    return {
        "column": name,
        "type": type_told(kind),
        "unit": said.get("unit"),
        "nullable": _NULL.search(said["is"]) is not None,
        "since": said.get("since", 1),
        "meaning": said["is"],
    }


def type_told(kind: Any) -> str:  # noqa: ANN401 (the types of Polars are classes or instances)
    """Return a type's name, such as `list<struct<path: string, size: int64>>`."""
    if isinstance(kind, pl.Array):
        return f"vector<{type_told(kind.inner)}>"
    if isinstance(kind, pl.List):
        return f"list<{type_told(kind.inner)}>"
    if isinstance(kind, pl.Struct):
        return f"struct<{', '.join(f'{one.name}: {type_told(one.dtype)}' for one in kind.fields)}>"
    if isinstance(kind, pl.Datetime):
        return "timestamp (UTC)"
    return str(kind).lower()
