"""Parquet files below the root: written in one step, read with their columns and checksums checked."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import SchemaMismatch, StorageError
from storage.root import Root
from storage.schemas import SCHEMA_VERSION
from storage.sealed import DAMAGE, sealed_parquet

_OLDEST = pl.CompatLevel.oldest()


def write_frame(root: Root, relative: str, frame: pl.DataFrame, schema: pl.Schema) -> None:
    """Write `frame` to a Parquet file in one step.

    Raises:
        SchemaMismatch: The frame's columns or types are not `schema`'s.
    """
    check_schema(relative, frame, schema)
    table = frame.to_arrow(compat_level=_OLDEST).replace_schema_metadata(
        {"schema_version": str(SCHEMA_VERSION)}
    )
    # Arrow rather than Polars writes and reads: flipped bits in a page, unchecked, abort Polars' process.
    root.write(relative, sealed_parquet(table))


def read_frame(
    root: Root, relative: str, schema: pl.Schema, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Return a Parquet file's rows; `columns` names those wanted (None: all), in the schema's order.

    Columns that a file of an older schema version lacks are null.

    Raises:
        StorageError: The file is missing or damaged.
        SchemaMismatch: It was written by a newer version, or its columns are not `schema`'s.
    """
    place = root.at(relative)
    wanted = [name for name in schema if columns is None or name in columns]
    try:
        with root.open(relative) as data, pq.ParquetFile(data, page_checksum_verification=True) as file:
            absent = _check(place, file.schema_arrow, schema)
            table = file.read(columns=[n for n in wanted if n not in absent], use_threads=False)
        frame = pl.DataFrame(table)
        if frame.columns == wanted:  # a table is read as often as it has files: every step counts
            return frame
        nulls = (pl.lit(None, dtype=schema[n]).alias(n) for n in wanted if n in absent)
        return frame.with_columns(nulls).select(wanted)
    except DAMAGE as error:
        msg = f"{place} cannot be read as Parquet ({str(error).splitlines()[0]})"
        raise StorageError(msg) from error


def check_schema(name: str, frame: pl.DataFrame, schema: pl.Schema) -> None:
    """Let a frame pass that has exactly these columns, in their order; `name` is what it is called.

    Raises:
        SchemaMismatch: It has not.
    """
    if frame.schema != schema:
        raise SchemaMismatch(_difference(name, frame.schema, schema))


def _check(place: str, found: pa.Schema, expected: pl.Schema) -> set[str]:
    """Return the columns that came with a later schema version than the file's: they are null in it."""
    written = int((found.metadata or {}).get(b"schema_version", b"0"))
    if written > SCHEMA_VERSION:
        msg = f"{place} has schema version {written}, this program knows {SCHEMA_VERSION}: upgrade"
        raise SchemaMismatch(msg)
    columns = _columns(found)
    absent = set(expected) - set(columns) if written < SCHEMA_VERSION else set()
    if dict(columns) != {n: t for n, t in expected.items() if n not in absent}:
        raise SchemaMismatch(_difference(place, columns, expected))
    return absent


@functools.lru_cache(maxsize=64)
def _columns(schema: pa.Schema) -> pl.Schema:
    return pl.DataFrame(schema.empty_table()).schema


def _difference(name: str, found: pl.Schema, expected: pl.Schema) -> str:
    wrong = [n for n in expected if found.get(n) != expected[n]] + [n for n in found if n not in expected]
    return f"{name}: columns {', '.join(wrong) or 'in another order'} differ from the schema"
