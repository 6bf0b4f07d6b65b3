"""Tells which documents had left their sources by the end of a day, as far as that was written down."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time

import polars as pl

from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import DROPPED
from storage.state import SEEN, read_run, seen_table

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
