"""Raw retention: removes raw snapshots that are old, and that no backfill or published version needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from storage.lance.served import published_versions
from storage.parquet import read_frame, rewrite_rows
from storage.partitions import forget_entry, renew_entry
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, RawDocument
from storage.state import documents_table, folded_table, seen_table
from tasks.crawl.backfill import day_of, raw_since, rebuilt_days, write_raw_since
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.identity import doc_key

_KEY, _WHEN = ["doc_id", "source"], ["doc_id", "source", "fetched_at"]
_TEXT = ["doc_key", "source", "commit", "content_hash"]  # by which what is served finds its snapshot
_WORTH_IT = 0.5  # share of a part's rows that must be free before it is written without them


def trim_raw(
    root: Root, days: int, now: datetime, content_hash: Callable[[RawDocument], str | None]
) -> dict[str, Any]:
    """Remove what raw holds of before so many days ago, but what is needed.

    Raw stays whole from the day of the oldest published version on, if that is earlier: who goes back to it
    needs its files. Of before, the newest snapshot of each document stays, also as of each day that was
    rebuilt; the oldest, since who brought an id first owns it; and, since a revision may be held, what
    `seen` or a row of the corpus names, and what gives a text that a published version serves, of which
    `content_hash` tells. The caller holds the root's writer lock.

    Returned are `since`, the first day that is whole, and the `files`, `rows` of documents and `bytes` gone.
    """
    times = [version.published_at for version in published_versions(root)]
    since = max(raw_since(root), min([now - timedelta(days=days), *times]).date().isoformat())
    old = [file for file in root.files("raw", ".parquet") if day_of(file) < since]
    listings = [file for file in old if file.startswith("raw/listings/")]
    rows = _rows(root, [file for file in old if file not in set(listings)], since)
    served = _serving(root, rows.filter(~pl.col("needed")), content_hash)
    rows = rows.join(served.with_columns(served=True), on=_WHEN, how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("needed") | pl.col("served").is_not_null())
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
    keys = root.each(lambda file: read_frame(root, file, RAW_DOCUMENTS, [*_WHEN, "commit"]), parts)
    none = RAW_DOCUMENTS.to_frame().select(*_WHEN, "commit", raw_part=pl.lit(""))
    named = [
        frame.select(*_WHEN, "commit", raw_part=pl.lit(part)) for frame, part in zip(keys, parts, strict=True)
    ]
    rows = pl.concat([none, *named]).with_columns(day=pl.col("raw_part").str.extract("/date=([^/]+)/"))
    ends = pl.col("fetched_at").eq(pl.col("fetched_at").min().over(_KEY))
    for day in [since, *(place.uri.rpartition("=")[2] for place in rebuilt_days(root))]:
        by_then = pl.when(pl.col("day") <= day).then("fetched_at")
        ends |= by_then.eq(by_then.max().over(_KEY)).fill_null(value=False)
    seen = seen_table(root).read(columns=[*_KEY, "raw_part"]).with_columns(named=True)
    held = pl.concat([table(root).read(columns=_WHEN) for table in (documents_table, folded_table)])
    rows = rows.join(seen, on=[*_KEY, "raw_part"], how="left", maintain_order="left")
    rows = rows.join(held.unique().with_columns(held=True), on=_WHEN, how="left", maintain_order="left")
    return rows.with_columns(needed=ends | pl.col("named").is_not_null() | pl.col("held").is_not_null())


def _serving(
    root: Root, rows: pl.DataFrame, content_hash: Callable[[RawDocument], str | None]
) -> pl.DataFrame:
    """Return the keys of rows that give a text which a published version serves and the corpus lacks."""
    tables = {version.skills: version.skills_table(root) for version in published_versions(root)}
    same = ["doc_id", "content_hash", "commit"]
    none = pl.DataFrame(schema=dict.fromkeys([*same, "source"], pl.String))
    texts = pl.concat([none, *(table.frame(none.columns) for table in tables.values())]).unique()
    for table in (documents_table(root), folded_table(root)):
        texts = texts.join(table.read(columns=same), on=same, how="anti", nulls_equal=True)
    texts, rows = _keyed(texts), _keyed(rows)
    likely = rows.join(texts, on=_TEXT[:-1], how="semi", nulls_equal=True)

    def hashed(of_part: pl.DataFrame) -> pl.DataFrame:
        held = read_frame(root, of_part["raw_part"][0], RAW_DOCUMENTS).join(of_part, on=_WHEN, how="semi")
        hashes = [content_hash(raw_document(row)) for row in held.iter_rows(named=True)]
        return held.select(*_WHEN, "commit", content_hash=pl.Series(hashes, dtype=pl.String))

    found = root.each(hashed, likely.partition_by("raw_part"))
    empty = rows.clear().select(*_WHEN, "commit", content_hash=pl.lit(None, pl.String))
    given = _keyed(pl.concat([empty, *found]))
    return given.join(texts, on=_TEXT, how="semi", nulls_equal=True).select(_WHEN).unique()


def _keyed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(doc_key=pl.Series(map(doc_key, rows["doc_id"]), dtype=pl.String))


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
