"""Raw retention: removes raw snapshots that are old, and that no backfill or published version needs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from storage.lance.served import published_versions
from storage.parquet import read_frame, rewrite_rows
from storage.partitions import forget_entry, renew_entry
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS
from storage.state import documents_table, folded_table, seen_table
from tasks.crawl.backfill import day_of, raw_since, rebuilt_days, write_raw_since

_KEY, _WHEN = ["doc_id", "source"], ["doc_id", "source", "fetched_at"]
_WORTH_IT = 0.5  # share of a part's rows that must be free before it is written without them


def trim_raw(root: Root, days: int, now: datetime) -> dict[str, Any]:
    """Remove what raw holds of before so many days ago, but what is needed.

    Raw stays whole from the day of the oldest published version on, if that is earlier: who goes back to it
    needs its files. Of before, the newest snapshot of each document stays, also as of each day that was
    rebuilt, and what `seen` or a row of the corpus names, since a revision may be held. The caller holds the
    root's writer lock.

    Returns:
        `since`, the first day that is whole, and the `files`, `rows` of documents and `bytes` that went.

    Raises:
        StorageError: A raw part or a table cannot be read.
    """
    times = [version.published_at for version in published_versions(root)]
    since = max(raw_since(root), min([now - timedelta(days=days), *times]).date().isoformat())
    old = [file for file in root.files("raw", ".parquet") if day_of(file) < since]
    listings = [file for file in old if file.startswith("raw/listings/")]
    rows = _rows(root, [file for file in old if file not in set(listings)], since)
    size = root.sizes().get("raw", 0)
    write_raw_since(root, since)  # first: of days that are trimmed in part, no backfill may be made
    left = root.each(lambda part: _trim(root, part), rows.partition_by("raw_part"))
    root.each(lambda file: _remove(root, file), listings)
    return {
        "since": since, "files": len(listings) + left.count(0), "rows": rows.height - sum(left),
        "bytes": size - root.sizes().get("raw", 0),
    }  # fmt: skip


def _rows(root: Root, parts: list[str], since: str) -> pl.DataFrame:
    """Return the keys of all rows of old parts, in their order, each with whether it is `needed`."""
    keys = root.each(lambda file: read_frame(root, file, RAW_DOCUMENTS, _WHEN), parts)
    none = pl.DataFrame(schema={name: RAW_DOCUMENTS[name] for name in _WHEN} | {"raw_part": pl.String})
    named = [frame.with_columns(raw_part=pl.lit(part)) for frame, part in zip(keys, parts, strict=True)]
    rows = pl.concat([none, *named]).with_columns(day=pl.col("raw_part").str.extract("/date=([^/]+)/"))
    newest = pl.lit(value=False)
    for day in [since, *(place.uri.rpartition("=")[2] for place in rebuilt_days(root))]:
        by_then = pl.when(pl.col("day") <= day).then("fetched_at")
        newest |= by_then.eq(by_then.max().over(_KEY)).fill_null(value=False)
    seen = seen_table(root).read(columns=[*_KEY, "raw_part"]).with_columns(named=True)
    held = pl.concat([table(root).read(columns=_WHEN) for table in (documents_table, folded_table)])
    rows = rows.join(seen, on=[*_KEY, "raw_part"], how="left", maintain_order="left")
    rows = rows.join(held.unique().with_columns(held=True), on=_WHEN, how="left", maintain_order="left")
    return rows.with_columns(needed=newest | pl.col("named").is_not_null() | pl.col("held").is_not_null())


def _trim(root: Root, rows: pl.DataFrame) -> int:
    """Remove a part, or write it without the rows that nobody needs if they are many; return those left."""
    part, needed = rows["raw_part"][0], rows["needed"]
    if not needed.any():
        _remove(root, part)
        return 0
    if needed.sum() > (1 - _WORTH_IT) * rows.height:
        return rows.height
    kept = pa.array(needed.to_list(), pa.bool_())
    renew_entry(root, part, *rewrite_rows(root, part, lambda table: table.filter(kept)))
    return int(needed.sum())


def _remove(root: Root, part: str) -> None:
    forget_entry(root, part)
    root.delete(part)
