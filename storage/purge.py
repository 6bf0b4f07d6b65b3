"""Takes rows out of Parquet files whatever their schema; nothing else rewrites what was written before."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import StorageError
from storage.root import Root
from storage.sealed import DAMAGE, check_seal, sealed_parquet


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
    except DAMAGE as error:
        raise _damaged(root, relative, error) from error


def rewrite_rows(root: Root, relative: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put in place of a file's rows, in one step, what `change` makes of them; its schema stays as it is.

    Raises:
        StorageError: The file is missing or damaged, or cannot be written.
    """
    with _open(root, relative) as file:
        table = _read(root, relative, file, None)
    changed = change(table).cast(table.schema)
    root.write(relative, sealed_parquet(changed))


def _open(root: Root, relative: str) -> pq.ParquetFile:
    try:
        data = root.read(relative)
        check_seal(data)
        return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    except DAMAGE as error:
        raise _damaged(root, relative, error) from error


def _read(root: Root, relative: str, file: pq.ParquetFile, columns: list[str] | None) -> pa.Table:
    try:
        return file.read(columns=columns, use_threads=False)
    except DAMAGE as error:
        raise _damaged(root, relative, error) from error


def _damaged(root: Root, relative: str, error: BaseException) -> StorageError:
    return StorageError(f"{root.at(relative)} cannot be read as Parquet ({str(error).splitlines()[0]})")
