"""Parquet files below the root: written in one step, read with their columns and checksums checked."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl

from storage.errors import NewerSchema, SchemaMismatch, StorageError
from storage.root import Root
from storage.schemas import SCHEMA_VERSION

if TYPE_CHECKING:  # its import takes a tenth of a query, which reads one file at most
    import pyarrow as pa
    import pyarrow.parquet as pq

_KEY, _NONE = b"skillery.crc32", b"00000000"
# How the footer (Thrift, compact) holds the entry: the key, then a field of eight bytes.
_ENTRY = re.compile(re.escape(_KEY) + rb"\x18\x08(.{8})", re.DOTALL)


@functools.cache
def damage() -> tuple[type[BaseException], ...]:
    """Return what reading a damaged file raises; a panic of Polars is no `Exception`."""
    import pyarrow as pa  # noqa: PLC0415 (as above)

    return pa.ArrowException, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException


def sealed_parquet(table: pa.Table) -> bytes:
    """Return a table as a Parquet file whose pages, and itself as a whole, have a checksum (CRC-32)."""
    import pyarrow as pa  # noqa: PLC0415 (as above)
    import pyarrow.parquet as pq  # noqa: PLC0415 (as above)

    metadata = {**(table.schema.metadata or {}), _KEY: _NONE}
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata), buffer, compression="zstd", write_page_checksum=True
    )
    data = bytearray(buffer.getvalue())
    entry = _entry(data)
    if entry is None:
        msg = "this version of Arrow writes footers otherwise: the checksum of the file has no place"
        raise AssertionError(msg)
    data[entry.start(1) : entry.end(1)] = b"%08x" % zlib.crc32(data)
    return bytes(data)


def check_seal(data: bytes) -> bool:
    """Return whether a Parquet file has a checksum, which older versions did not write.

    Raises:
        ValueError: The checksum is wrong.
    """
    entry = _entry(data)
    if entry is None:
        return False
    start, end = entry.span(1)
    with memoryview(data) as view:
        found = zlib.crc32(view[end:], zlib.crc32(_NONE, zlib.crc32(view[:start])))
    if b"%08x" % found != entry[1]:
        msg = "its bytes are not those that were written: the checksum of the file is another"
        raise ValueError(msg)
    return True


def read_sealed(data: bytes, columns: Sequence[str]) -> pl.DataFrame | None:
    """Return columns of a Parquet file whose checksum is right; None of one that has none.

    Polars reads it: it loads sooner than Arrow, but aborts the process on bits that were flipped.

    Raises:
        ValueError: The checksum is wrong.
    """
    return pl.read_parquet(BytesIO(data), columns=[*columns]) if check_seal(data) else None


def _entry(data: bytes | bytearray) -> re.Match[bytes] | None:
    """Return where a footer holds the checksum: it comes last, and a text may hold the same bytes."""
    return _ENTRY.match(data, max(0, data.rfind(_KEY)))


_OLDEST = pl.CompatLevel.oldest()


def write_frame(root: Root, relative: str, frame: pl.DataFrame, schema: pl.Schema) -> bytes:
    """Write `frame` to a Parquet file in one step, and return the file's bytes.

    Raises:
        SchemaMismatch: The frame's columns or types are not `schema`'s.
    """
    check_schema(relative, frame, schema)
    table = frame.to_arrow(compat_level=_OLDEST).replace_schema_metadata(
        {"schema_version": str(SCHEMA_VERSION)}
    )
    # Arrow rather than Polars writes and reads: flipped bits in a page, unchecked, abort Polars' process.
    data = sealed_parquet(table)
    root.write(relative, data)
    return data


def read_frame(
    root: Root, relative: str, schema: pl.Schema, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Return a Parquet file's rows; `columns` names those wanted (None: all), in the schema's order.

    Columns that a file of an older schema version lacks are null.

    Raises:
        StorageError: The file is missing or damaged.
        SchemaMismatch: It was written by a newer version, or its columns are not `schema`'s.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 (as above)

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
    except damage() as error:
        msg = f"{place} cannot be read as Parquet ({str(error).splitlines()[0]})"
        raise StorageError(msg) from error


def check_columns(root: Root, relative: str, schema: pl.Schema) -> None:
    """Raise `SchemaMismatch` if a file's columns are not `schema`'s, `NewerSchema` if they are later ones."""
    with _open(root, relative) as file:
        _check(root.at(relative), file.schema_arrow, schema)


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


def read_columns(root: Root, relative: str, wanted: Collection[str] | None) -> pl.DataFrame:
    """Return those of the columns wanted (None: all) that a file has; with none of them an empty frame.

    Raises:
        StorageError: The file is missing or damaged.
    """
    with _open(root, relative) as file:
        present = [name for name in file.schema_arrow.names if wanted is None or name in wanted]
        table = _read(root, relative, file, present)
    try:
        return pl.DataFrame(table) if present else pl.DataFrame()
    except damage() as error:
        raise _damaged(root, relative, error) from error


def rewrite_rows(root: Root, relative: str, change: Callable[[pa.Table], pa.Table]) -> tuple[int, bytes]:
    """Put in place of a file's rows, in one step, what `change` makes of them; its schema stays as it is.

    Returns:
        The number of rows, and the bytes of the file.

    Raises:
        StorageError: The file is missing or damaged, or cannot be written.
    """
    with _open(root, relative) as file:
        table = _read(root, relative, file, None)
    changed = change(table).cast(table.schema)
    data = sealed_parquet(changed)
    root.write(relative, data)
    return changed.num_rows, data


def _open(root: Root, relative: str) -> pq.ParquetFile:
    import pyarrow as pa  # noqa: PLC0415 (as above)
    import pyarrow.parquet as pq  # noqa: PLC0415 (as above)

    try:
        data = root.read(relative)
        check_seal(data)
        return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    except damage() as error:
        raise _damaged(root, relative, error) from error


def _read(root: Root, relative: str, file: pq.ParquetFile, columns: list[str] | None) -> pa.Table:
    try:
        return file.read(columns=columns, use_threads=False)
    except damage() as error:
        raise _damaged(root, relative, error) from error


def _damaged(root: Root, relative: str, error: BaseException) -> StorageError:
    return StorageError(f"{root.at(relative)} cannot be read as Parquet ({str(error).splitlines()[0]})")
