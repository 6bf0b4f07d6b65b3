"""Parquet files below the root: written in one step, read with their columns checked."""

from __future__ import annotations

import io
from collections.abc import Sequence

import polars as pl

from storage.errors import SchemaMismatch, StorageError
from storage.root import Root
from storage.schemas import SCHEMA_VERSION


def write_frame(root: Root, relative: str, frame: pl.DataFrame, schema: pl.Schema) -> None:
    """Write `frame` to a Parquet file in one step.

    Raises:
        SchemaMismatch: The frame's columns or types are not `schema`'s.
    """
    if frame.schema != schema:
        raise SchemaMismatch(_difference(relative, frame.schema, schema))
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", metadata={"schema_version": str(SCHEMA_VERSION)})
    root.write(relative, buffer.getvalue())


def read_frame(
    root: Root, relative: str, schema: pl.Schema, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Return a Parquet file's rows; `columns` names those wanted (None: all).

    Raises:
        StorageError: The file is missing or damaged.
        SchemaMismatch: It was written by a newer version, or its columns are not `schema`'s.
    """
    data = root.read(relative)
    try:
        written = int(pl.read_parquet_metadata(io.BytesIO(data)).get("schema_version", "0"))
        frame = pl.read_parquet(io.BytesIO(data), columns=list(columns) if columns is not None else None)
    except pl.exceptions.PolarsError as error:
        msg = f"{root.at(relative)} cannot be read as Parquet ({str(error).splitlines()[0]})"
        raise StorageError(msg) from error
    if written > SCHEMA_VERSION:
        msg = (
            f"{root.at(relative)} has schema version {written}, this program knows {SCHEMA_VERSION}: upgrade"
        )
        raise SchemaMismatch(msg)
    expected = pl.Schema({n: t for n, t in schema.items() if columns is None or n in columns})
    if any(frame.schema.get(name) != dtype for name, dtype in expected.items()):
        raise SchemaMismatch(_difference(root.at(relative), frame.schema, expected))
    return frame.select(expected.names())


def _difference(name: str, found: pl.Schema, expected: pl.Schema) -> str:
    wrong = [n for n in expected if found.get(n) != expected[n]] + [n for n in found if n not in expected]
    return f"{name}: columns {', '.join(wrong)} differ from the schema"
