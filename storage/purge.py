"""Takes rows out of Parquet files whatever their schema; nothing else rewrites what was written before."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import StorageError
from storage.root import Root

_DAMAGE = (pa.ArrowException, OSError, ValueError)


def read_columns(root: Root, relative: str, wanted: Collection[str] | None) -> pl.DataFrame:
    """Return those of the columns wanted (None: all) that a file has; with none of them an empty frame.

    Raises:
        StorageError: The file is missing or damaged.
    """
    with _open(root, relative) as file:
        present = [name for name in file.schema_arrow.names if wanted is None or name in wanted]
        table = _read(root, relative, file, present)
    return pl.DataFrame(table) if present else pl.DataFrame()


def rewrite_rows(root: Root, relative: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put in place of a file's rows, in one step, what `change` makes of them; its schema stays as it is.

    Raises:
        StorageError: The file is missing or damaged, or cannot be written.
    """
    with _open(root, relative) as file:
        table = _read(root, relative, file, None)
    changed = change(table).cast(table.schema)
    buffer = pa.BufferOutputStream()
    pq.write_table(changed, buffer, compression="zstd", write_page_checksum=True)
    root.write(relative, buffer.getvalue().to_pybytes())


def _open(root: Root, relative: str) -> pq.ParquetFile:
    try:
        source = pa.BufferReader(root.read(relative))
        return pq.ParquetFile(source, page_checksum_verification=True)
    except _DAMAGE as error:
        raise _damaged(root, relative, error) from error


def _read(root: Root, relative: str, file: pq.ParquetFile, columns: list[str] | None) -> pa.Table:
    try:
        return file.read(columns=columns, use_threads=False)
    except _DAMAGE as error:
        raise _damaged(root, relative, error) from error


def _damaged(root: Root, relative: str, error: Exception) -> StorageError:
    return StorageError(f"{root.at(relative)} cannot be read as Parquet ({str(error).splitlines()[0]})")
