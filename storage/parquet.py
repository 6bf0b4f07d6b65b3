"""Parquet files below the root: written in one step, read with columns and checksums checked."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import polars as pl

from storage.errors import NewerSchema, SchemaMismatch, StorageError
from storage.root import Root
from storage.schemas import SCHEMA_VERSION

if TYPE_CHECKING:  # its import takes a tenth of a query, which reads one file at most
    import pyarrow as pa
    import pyarrow.parquet as pq


# Bytes of a table: to pack a smaller one takes as long as all the rest of writing it, and saves no room.
_SMALL = 16_384


@functools.cache
def damage() -> tuple[type[BaseException], ...]:
    """Return what reading a damaged file raises; a panic of Polars is no `Exception`."""
    import pyarrow as pa  # noqa: PLC0415 (as above)

    return pa.ArrowException, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException


def parquet_bytes(table: pa.Table, rows_per_group: int | None = None) -> bytes:
    """Return a table as a Parquet file whose pages have checksums (CRC-32), packed if that is worth it.

    A row group has at most `rows_per_group` rows, and no dictionary; None: as many as Arrow puts there, a
    million, with dictionaries.
    """
    import pyarrow as pa  # noqa: PLC0415 (as above)
    import pyarrow.parquet as pq  # noqa: PLC0415 (as above)

    buffer = pa.BufferOutputStream()
    packed = "zstd" if table.nbytes > _SMALL else "none"
    pq.write_table(
        table, buffer, compression=packed, write_page_checksum=True, row_group_size=rows_per_group,
        use_dictionary=rows_per_group is None,
    )  # fmt: skip
    return bytes(buffer.getvalue())


_OLDEST = pl.CompatLevel.oldest()


def write_frame(
    root: Root, relative: str, frame: pl.DataFrame, schema: pl.Schema, rows_per_group: int | None = None
) -> bytes:
    """Write `frame`, of exactly this schema (else `SchemaMismatch`), in one step; return the file's bytes.

    `rows_per_group` is as `parquet_bytes` has it: `read_frame` decodes no fewer rows than a group has.
    """
    check_schema(relative, frame, schema)
    table = frame.to_arrow(compat_level=_OLDEST).replace_schema_metadata(
        {"schema_version": str(SCHEMA_VERSION)}
    )
    # Arrow rather than Polars writes and reads: flipped bits in a page, unchecked, abort Polars' process.
    data = parquet_bytes(table, rows_per_group)
    root.write(relative, data)
    return data


def read_frame(
    root: Root, relative: str, schema: pl.Schema, columns: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Return a Parquet file's rows; `columns` names those wanted (None: all), in the schema's order.

    `rows` are the places of those wanted, in their order (None: all); only groups with one are decoded.
    Columns that a file of an older schema version lacks are null. A file that is missing, damaged or shorter
    than `rows` say is StorageError, one of a newer version or with other columns SchemaMismatch.
    """
    wanted = [name for name in schema if columns is None or name in columns]
    with _opened(root, relative) as file:
        absent = _check(root.at(relative), file.schema_arrow, schema)
        present = [name for name in wanted if name not in absent]
        if rows is None:
            frame = pl.DataFrame(file.read(columns=present, use_threads=False))
        else:
            frame = _decoded(file, present, rows)
        if frame.columns == wanted:  # a table is read as often as it has files: every step counts
            return frame
        nulls = (pl.lit(None, dtype=schema[n]).alias(n) for n in wanted if n in absent)
        return frame.with_columns(nulls).select(wanted)


def _decoded(file: pq.ParquetFile, columns: list[str], rows: Sequence[int]) -> pl.DataFrame:
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    starts = list(accumulate(sizes, initial=0))
    if beyond := [row for row in rows if row >= starts[-1]]:
        raise ValueError(f"row {beyond[0]} of {starts[-1]} was asked for")
    within = [bisect_right(starts, row) - 1 for row in rows]
    groups = sorted(set(within))
    before = dict(zip(groups, accumulate((sizes[group] for group in groups), initial=0), strict=False))
    read = pl.DataFrame(file.read_row_groups(groups, columns=columns, use_threads=False))
    return read[[before[group] + row - starts[group] for group, row in zip(within, rows, strict=True)]]


def check_schema(name: str, frame: pl.DataFrame, schema: pl.Schema) -> None:
    """Raise `SchemaMismatch` if a frame, called `name`, has other columns or another order of them."""
    if frame.schema != schema:
        raise SchemaMismatch(_difference(name, frame.schema, schema))


def _check(place: str, found: pa.Schema, expected: pl.Schema) -> set[str]:
    """Return the columns that came with a later schema version than the file's: they are null in it."""
    written = int((found.metadata or {}).get(b"schema_version", b"0"))
    if written > SCHEMA_VERSION:
        msg = f"{place} has schema version {written}, this program knows {SCHEMA_VERSION}: upgrade"
        raise NewerSchema(msg)
    columns = _columns(found)
    absent = set(expected) - set(columns) if written < SCHEMA_VERSION else set()
    if dict(columns) != {n: t for n, t in expected.items() if n not in absent}:
        raise SchemaMismatch(_difference(place, columns, expected))
    return absent


@functools.lru_cache(maxsize=64)
def _columns(schema: pa.Schema) -> pl.Schema:
    return pl.Schema(schema)


def _difference(name: str, found: pl.Schema, expected: pl.Schema) -> str:
    wrong = [n for n in expected if found.get(n) != expected[n]] + [n for n in found if n not in expected]
    return f"{name}: columns {', '.join(wrong) or 'in another order'} differ from the schema"


def read_columns(
    root: Root, relative: str, wanted: Collection[str] | None, schema: pl.Schema | None = None
) -> pl.DataFrame:
    """Return those of the columns wanted (None: all) that a file has; with none of them an empty frame.

    With a `schema` it must have its columns, as `read_frame` checks them; later ones are `NewerSchema`.
    """
    with _opened(root, relative) as file:
        found = file.schema_arrow
        if schema is not None:
            _check(root.at(relative), found, schema)
        present = [name for name in found.names if wanted is None or name in wanted]
        table = file.read(columns=present, use_threads=False)
        return pl.DataFrame(table) if present else pl.DataFrame()


def rewrite_rows(root: Root, relative: str, change: Callable[[pa.Table], pa.Table]) -> tuple[int, bytes]:
    """Put in place of a file's rows, in one step, what `change` makes of them; its schema stays as it is.

    Returned are the number of rows, and the bytes of the file; raises as `read_frame`.
    """
    with _opened(root, relative) as file:
        table = file.read(use_threads=False)
    changed = change(table).cast(table.schema)
    data = parquet_bytes(changed)
    root.write(relative, data)
    return changed.num_rows, data


@contextmanager
def _opened(root: Root, relative: str) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq  # noqa: PLC0415 (as above)

    try:
        with root.open(relative) as data, pq.ParquetFile(data, page_checksum_verification=True) as file:
            yield file
    except damage() as error:
        msg = f"{root.at(relative)} cannot be read as Parquet ({str(error).splitlines()[0]})"
        raise StorageError(msg) from error
