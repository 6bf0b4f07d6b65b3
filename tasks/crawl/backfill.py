"""Plans a backfill, and rebuilds from raw parts which documents had been seen by the end of a day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from storage.errors import StorageError, WrongInput
from storage.parquet import read_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import DROPPED, RAW_DOCUMENTS
from storage.state import SEEN, documents_table, read_run, refined_table, seen_table
from storage.tombstones import Forgotten

STAGES = ("refine", "parse")  # of a backfill, for each day
_KEY = ["doc_id", "source"]
_COLUMNS = ("doc_id", "source", "raw_hash", "fetched_at")
_GONE = ("retired", "withdrawn")
_RAW_SINCE = "state/raw_since.json"
_BEGAN = re.compile(r"(\d{8}T\d{6})-")  # the beginning of a run id that was not given by a person


def days_crawled(root: Root, start: str, end: str) -> list[str]:
    """Return the days from `start` to `end` (YYYY-MM-DD, else WrongInput) on which something was crawled.

    Days of which raw is not whole any more are left out, unless they were rebuilt while it was.
    """
    try:
        first, last = date.fromisoformat(start), date.fromisoformat(end)
    except ValueError as error:
        raise WrongInput(f"{start!r} to {end!r}: give dates as YYYY-MM-DD") from error
    if last < first:
        raise WrongInput(f"{end} lies before {start}")
    days = {day_of(file) for file in root.files("raw/documents", ".parquet")}
    if since := raw_since(root):
        rebuilt = {day_of(f"{place.uri}/") for place in rebuilt_days(root)}
        days = {day for day in days if day >= since} | rebuilt
    return sorted(day for day in days if first.isoformat() <= day <= last.isoformat())


def raw_since(root: Root) -> str:
    """Return the first day from which raw is whole; empty where nothing was ever taken out of it."""
    return str((root.read_json(_RAW_SINCE) or {}).get("since", ""))


def write_raw_since(root: Root, day: str) -> None:
    """Note that raw is whole from this day on."""
    root.write_json(_RAW_SINCE, {"since": day})


def require_whole(stages: Sequence[str]) -> None:
    """Raise WrongInput if a backfill whose last day is to be served leaves out a stage; empty means all."""
    if stages and set(stages) != set(STAGES):
        # Texts of one backfill do not fit pieces of another, and no check of the gate compares them.
        raise WrongInput(
            f"what is served needs {' and '.join(STAGES)}, not {stages[0]} alone: leave out stages or publish"
        )


def replay_plan(root: Root, days: list[str]) -> list[dict[str, Any]]:
    """Return for each day the number of raw parts that its replay reads, and of documents rebuilt before."""
    parts = [day_of(file) for file in root.files("raw/documents", ".parquet")]
    plan = []
    for day in days:
        rebuilt = documents_table(Root(root.at(backfill_of(day)))).read(columns=["doc_id"]).height
        read = sum(fetched <= day for fetched in parts)
        plan.append({"day": day, "raw parts": read, "documents rebuilt before": rebuilt})
    return plan


def backfill_of(day: str) -> str:
    """Return the folder of a day's tables, relative to the root."""
    return f"backfill/date={day}"


def rebuilt_days(root: Root) -> list[Root]:
    """Return the roots of the days that were rebuilt below a root, sorted."""
    return [
        Root(root.at(day)) for day in sorted({"/".join(f.split("/")[:2]) for f in root.files("backfill")})
    ]


def day_of(file: str) -> str:
    """Return the day (YYYY-MM-DD) on which a raw part was fetched."""
    return file.partition("/date=")[2].partition("/")[0]


def replay_seen(root: Root, day: str, into: Root) -> int:
    """Write `seen` of `into` as it was at the end of a day of `root`, and return its number of documents.

    Forgotten documents are left out, and those that had left their source (see `_without_departed`).
    """
    frame = _without_departed(root, _newest(root, day), day)
    known = seen_table(root).read(columns=[*_KEY, "first_seen_at"]).rename({"first_seen_at": "known"})
    frame = frame.join(known, on=_KEY, how="left", maintain_order="left")
    first = pl.min_horizontal("first_seen_at", "known")  # raw may not hold the first snapshot any more
    frame = frame.with_columns(first_seen_at=first).drop("known")
    table = seen_table(into)
    table.replace({*frame["doc_id"], *table.read(columns=["doc_id"])["doc_id"]}, frame)
    return frame.height


def recover_seen(root: Root, file: str) -> int:
    """Rebuild a lost partition of `seen`, the relative path `file`, from raw parts; return its row count.

    Documents that refine does not know count as retired, and so do those that the file says are, where it can
    be read. The digests are not those of the crawl, so that each document is fetched and refined once more.
    """
    table, refined = seen_table(root), refined_table(root)
    partition = int(PurePosixPath(file).stem.rpartition("-")[2])
    rows = _newest(root, "9999-12-31")
    rows = rows.filter([partition_of(doc_id) == partition for doc_id in rows["doc_id"]])
    if root.exists(refined.file(partition)):
        held = refined.read([partition], _KEY).with_columns(held=True)
        rows = rows.join(held, on=_KEY, how="left", maintain_order="left")
        rows = rows.with_columns(retired_at=pl.when("held").then(None).otherwise("last_seen_at")).drop("held")
    with suppress(StorageError):  # a run that was killed wrote the file, and not yet that it is whole
        told = read_frame(root, file, SEEN).select(*_KEY, told="retired_at")
        rows = rows.join(told, on=_KEY, how="left", maintain_order="left")
        rows = rows.with_columns(retired_at=pl.coalesce("told", "retired_at")).drop("told")
    table.put(partition, rows)
    return rows.height


def _newest(root: Root, day: str) -> pl.DataFrame:
    """Return rows of `seen`: each document's newest raw row by source, from the parts until a day."""
    files = [f for f in root.files("raw/documents", ".parquet") if day_of(f) <= day]
    parts = [read_frame(root, f, RAW_DOCUMENTS, _COLUMNS).with_columns(raw_part=pl.lit(f)) for f in files]
    none = pl.DataFrame(schema={name: RAW_DOCUMENTS[name] for name in _COLUMNS} | {"raw_part": pl.String})
    rows, forgotten = pl.concat([none, *parts]), Forgotten.load(root)
    held = [not forgotten.covers(*row) for row in rows.select("doc_id", "raw_hash").iter_rows()]
    # By time, not by part: a clock may have been set back. At equal times the later row counts.
    newest = pl.col("raw_part", "raw_hash").sort_by("fetched_at", maintain_order=True).last()
    times = {"first_seen_at": pl.col("fetched_at").min(), "last_seen_at": pl.col("fetched_at").max()}
    rows = rows.filter(held).group_by(_KEY, maintain_order=True).agg(newest, **times)
    never = pl.lit(None, SEEN["retired_at"])
    digest = pl.format("{}:{}", "raw_part", "raw_hash")
    return rows.with_columns(digest=digest, stale_since=never, retired_at=never).select(SEEN.names())


def _without_departed(root: Root, rows: pl.DataFrame, day: str) -> pl.DataFrame:
    """Return the rows of `_newest` without documents that were retired or withdrawn at the end of a day.

    The present `seen` has the last departure of documents that are still retired; `dropped/` of the runs has
    earlier ones. A document that returned unchanged has no new raw row: it counts as away until its next raw
    row, or until it was last seen, if that is sooner.
    """
    until = datetime.combine(date.fromisoformat(day), time.max, UTC)
    now = seen_table(root).read().select(*_KEY, "retired_at", last="last_seen_at")
    known = rows.select(*_KEY, fetched="last_seen_at")
    known = known.join(now, on=_KEY, how="left", maintain_order="left")
    known = known.join(_departures(root, until), on=_KEY, how="left", maintain_order="left")
    seen_then = pl.when(pl.col("last") <= until).then("last")
    away = (pl.col("retired_at") <= until).fill_null(value=False)
    away |= (pl.col("left_at") > pl.max_horizontal("fetched", seen_then)).fill_null(value=False)
    return rows.filter(~known.select(away).to_series())


def _departures(root: Root, until: datetime) -> pl.DataFrame:
    """Return the start of the last run, by `until`, that noted a document's departure from a source."""
    frames = [pl.DataFrame(schema={**{name: SEEN[name] for name in _KEY}, "left_at": SEEN["retired_at"]})]
    columns = ("run_id", *_KEY, "reason")
    for file in root.files("dropped", ".parquet"):
        gone = read_frame(root, file, DROPPED, columns).filter(pl.col("reason").is_in(_GONE))
        for (run_id,), rows in gone.group_by("run_id"):
            began = _began(root, str(run_id))
            if began is not None and began <= until:
                frames.append(rows.select(*_KEY, left_at=pl.lit(began, SEEN["retired_at"])))
    return pl.concat(frames).group_by(_KEY).agg(pl.col("left_at").max())


def _began(root: Root, run_id: str) -> datetime | None:
    record = read_run(root, run_id)
    if record is not None:
        return datetime.fromisoformat(record["started_at"])
    named = _BEGAN.match(run_id)
    return datetime.strptime(named[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC) if named else None
