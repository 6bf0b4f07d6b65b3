"""Backfill of past days: replays raw snapshots up to the end of a day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from storage.errors import WrongInput
from storage.parquet import read_frame, write_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import DROPPED, RAW_DOCUMENTS
from storage.state import SEEN, documents_table, read_run, refined_table, seen_table
from storage.tombstones import Forgotten

_KEY = ["doc_id", "source"]
_GONE = ("retired", "withdrawn")
_BEGAN = re.compile(r"(\d{8}T\d{6})-")  # how the name of a run that was given none begins


def without_departed(root: Root, rows: pl.DataFrame, day: str) -> pl.DataFrame:
    """Leave out what had been retired or withdrawn by the end of a day, and had not come back by then.

    Known is when a document was retired last, if it still is; of earlier departures, the run whose `dropped/`
    names them, where its record or its name tells when it began. Not known is when a document came back as it
    was, which makes no raw row: it counts as away until its next raw row, or until it was seen last, if that
    is sooner. Of a departure that is over and that no run names, nothing is known: it counts as there.

    Args:
        root: Where it was crawled.
        rows: Of `seen`, as raw parts tell it: `last_seen_at` is when the newest row was fetched.
        day: YYYY-MM-DD.
    """
    until = datetime.combine(date.fromisoformat(day), time.max, UTC)
    now = seen_table(root).read().select(*_KEY, "retired_at", last="last_seen_at")
    known = rows.select(*_KEY, fetched="last_seen_at")
    known = known.join(now, on=_KEY, how="left", maintain_order="left")
    known = known.join(_left(root, until), on=_KEY, how="left", maintain_order="left")
    seen_then = pl.when(pl.col("last") <= until).then("last")
    away = (pl.col("retired_at") <= until).fill_null(value=False)
    away |= (pl.col("left_at") > pl.max_horizontal("fetched", seen_then)).fill_null(value=False)
    return rows.filter(~known.select(away).to_series())


def _left(root: Root, until: datetime) -> pl.DataFrame:
    """Return when runs last noted, by then, that a document had left a source; a run counts as it began."""
    frames = [pl.DataFrame(schema={**{name: SEEN[name] for name in _KEY}, "left_at": SEEN["retired_at"]})]
    columns = ("run_id", *_KEY, "reason")
    for file in root.files("dropped", ".parquet"):
        gone = read_frame(root, file, DROPPED, columns).filter(pl.col("reason").is_in(_GONE))
        for (run_id,), rows in gone.group_by("run_id"):
            began = _began(root, str(run_id))
            if began is not None and began <= until:
                left_at = pl.lit(began, SEEN["retired_at"])
                frames.append(rows.select(*_KEY, left_at=left_at))
    return pl.concat(frames).group_by(_KEY).agg(pl.col("left_at").max())


def _began(root: Root, run_id: str) -> datetime | None:
    record = read_run(root, run_id)
    if record is not None:
        return datetime.fromisoformat(record["started_at"])
    named = _BEGAN.match(run_id)
    return datetime.strptime(named[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC) if named else None


STAGES = ("refine", "parse")

"""What a backfill does of each day."""

_COLUMNS = ("doc_id", "source", "raw_hash", "fetched_at")


def _range(start: str, end: str) -> tuple[str, str]:
    try:
        first, last = date.fromisoformat(start), date.fromisoformat(end)
    except ValueError as error:
        msg = f"{start!r} to {end!r}: give dates as YYYY-MM-DD"
        raise WrongInput(msg) from error
    if last < first:
        msg = f"{end} lies before {start}"
        raise WrongInput(msg)
    return first.isoformat(), last.isoformat()


def replay_seen(root: Root, day: str, into: Root) -> int:
    """Make `seen` of `into` what had been seen by the end of a day: a document's newest raw row by source.

    What has been forgotten in `root` is left out, although a raw part should hold it; so is what had left its
    source by then, as far as that is known (`without_departed`).

    Returns:
        How many documents that is.
    """
    frame = without_departed(root, _newest(root, day), day)
    table = seen_table(into)
    table.replace({*frame["doc_id"], *table.read(columns=["doc_id"])["doc_id"]}, frame)
    return frame.height


def recover_seen(root: Root, file: str) -> int:
    """Make a lost partition of `seen` anew, of the newest raw rows; return how many rows it has.

    What refine knows nothing of is taken for retired. A row's digest is not what the crawl gave it, so that
    its document is refined and fetched once more.

    Args:
        root: Where it lies.
        file: The partition, relative to the root.
    """
    table, refined = seen_table(root), refined_table(root)
    partition = int(PurePosixPath(file).stem.rpartition("-")[2])
    rows = _newest(root, "9999-12-31")
    rows = rows.filter([partition_of(doc_id) == partition for doc_id in rows["doc_id"]])
    if root.exists(refined.file(partition)):
        held = refined.read([partition], ["doc_id", "source"]).with_columns(held=True)
        rows = rows.join(held, on=["doc_id", "source"], how="left", maintain_order="left")
        rows = rows.with_columns(retired_at=pl.when("held").then(None).otherwise("last_seen_at")).drop("held")
    write_frame(root, table.file(partition), rows, SEEN)
    return rows.height


def _newest(root: Root, day: str) -> pl.DataFrame:
    """Return rows as of `seen`: each document's newest raw row by source, of the parts until a day."""
    files = [f for f in root.files("raw/documents", ".parquet") if day_of(f) <= day]
    forgotten = Forgotten.load(root)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for file in files:
        for row in read_frame(root, file, RAW_DOCUMENTS, _COLUMNS).to_dicts():
            if forgotten.covers(row["doc_id"], row["raw_hash"]):
                continue
            key = (row["doc_id"], row["source"])
            fetched: datetime = row["fetched_at"]
            before = rows.get(key, {"first_seen_at": fetched, "last_seen_at": fetched})
            first = min(before["first_seen_at"], fetched)
            if fetched < before["last_seen_at"]:
                rows[key] = {**before, "first_seen_at": first}
                continue
            rows[key] = {
                "doc_id": row["doc_id"], "source": row["source"], "digest": f"{file}:{row['raw_hash']}",
                "raw_part": file, "first_seen_at": first, "last_seen_at": fetched,
                "stale_since": None, "retired_at": None,
            }  # fmt: skip
    return pl.DataFrame(list(rows.values()), schema=SEEN)


def days_crawled(root: Root, start: str, end: str) -> list[str]:
    """Return the days from `start` to `end` on which something was crawled, in order.

    Raises:
        WrongInput: One is no date, or the end lies before the start.
    """
    first, last = _range(start, end)
    days = {day_of(file) for file in root.files("raw/documents", ".parquet")}
    return sorted(day for day in days if first <= day <= last)


def require_whole(stages: Sequence[str]) -> None:
    """Let a backfill pass whose last day is to be served; empty means all of `STAGES`.

    Raises:
        WrongInput: Not all of a day is to be done.
    """
    if stages and set(stages) != set(STAGES):
        # Texts of one backfill and pieces of another do not fit, and no check of the gate compares them.
        msg = (
            f"what is served needs {' and '.join(STAGES)}, not {stages[0]} alone: leave out stages or publish"
        )
        raise WrongInput(msg)


def replay_plan(root: Root, days: list[str]) -> list[dict[str, Any]]:
    """Return a row a day: the raw parts that a replay of it reads, and the documents rebuilt before."""
    parts = [day_of(file) for file in root.files("raw/documents", ".parquet")]
    return [
        {
            "day": day,
            "raw parts": sum(fetched <= day for fetched in parts),
            "documents rebuilt before": documents_table(Root(root.at(backfill_of(day))))
            .read(columns=["doc_id"])
            .height,
        }
        for day in days
    ]


def backfill_of(day: str) -> str:
    """Return the folder, relative to the root, of the tables of a day."""
    return f"backfill/date={day}"


def day_of(file: str) -> str:
    """Return the day, YYYY-MM-DD, that a raw part was fetched on."""
    return file.partition("/date=")[2].partition("/")[0]
