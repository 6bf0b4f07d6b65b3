"""The list of sources: those that a run reads where it is given none; it is kept in `state/sources.json`.

`in_list` in a source's record says whether the source is on the list. Records of an older Skillery lack it:
such a source is on the list if it has documents, or if a run could read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from storage.root import Root
from storage.state import read_runs, read_sources, seen_table, write_source, write_sources
from tasks.crawl.source.identity import SAMPLE

UNREAD = "unread"  # the state of a source on the list that no run has read yet
_GOES_ON = timedelta(hours=36)  # after which a reading that was killed begins again: until the next night
Record = dict[str, Any]


def known_sources(root: Root) -> dict[str, Record]:
    """Return the records of all sources by spec, those that were removed too; writes nothing.

    Each has `documents`, which counts those that are not retired, and `in_list`, which is None for a source
    that only an older Skillery was given and that no run could read.
    """
    seen, records = seen_table(root).read(columns=["source", "retired_at"]), read_sources(root)
    held = Counter(seen.filter(pl.col("retired_at").is_null())["source"])
    specs = dict.fromkeys([*records, *_interrupted(root, records), *sorted(held)])
    found = {}
    for spec in specs:
        record = {"state": UNREAD, **records.get(spec, {}), "documents": held[spec]}
        found[spec] = {"in_list": _was_read(record) or None, **record}
    return found


def _interrupted(root: Root, records: Mapping[str, Record]) -> list[str]:
    """Return the sources of an older Skillery's last night if it ended before it had crawled them."""
    if any("in_list" in record for record in records.values()):
        return []
    nights = [run for run in read_runs(root) if run.get("flow", "nightly") == "nightly"]
    return list(nights[0]["specs"]) if nights and not nights[0]["sources"] else []


def _was_read(record: Record) -> bool:
    known = record["documents"] or record.get("last_read") or record.get("last_complete")
    return bool(known) or record["state"] != "failed"


def specs_to_read(root: Root) -> list[str]:
    """Return the sources on the list; the sample marketplace for a root that knows no source at all."""
    known = known_sources(root)
    return [spec for spec, record in known.items() if record["in_list"]] if known else [SAMPLE]


def list_sources(
    root: Root, specs: Iterable[str] = (), now: datetime | None = None
) -> dict[str, Record | None]:
    """Put sources on the list; return what was known before of those that were not on it.

    Documents that were retired when their source was removed are there again. Sources that an older Skillery
    has read get their `in_list` too. With `now`, `specs` are about to be read: `began` keeps since when.
    """
    known, records, specs = known_sources(root), read_sources(root), list(specs)
    listed = [spec for spec, record in known.items() if record["in_list"]]
    changed = {}
    for spec in dict.fromkeys([*listed, *specs]):
        record = records.get(spec, {"state": UNREAD})
        if removed := record.get("retired_at"):
            _set_retired(root, spec, datetime.fromisoformat(removed), None)
        changed[spec] = {**record, "in_list": True, "retired_at": None}
        if now and spec in specs:
            changed[spec]["began"] = _began(record, now).isoformat()
    write_sources(root, changed)
    return {spec: records.get(spec) for spec in specs if spec not in listed}


def _began(record: Record, now: datetime) -> datetime:
    """Return when the reading began that a run of `now` goes on with, `now` where the last one has ended.

    What it reads was first seen then: of two copies, the one that is kept must not depend on a kill.
    """
    began = datetime.fromisoformat(record.get("began") or now.isoformat())
    return began if timedelta() <= now - began < _GOES_ON else now


def restore_sources(root: Root, before: Mapping[str, Record | None]) -> None:
    """Undo `list_sources` for sources that could not be read; `before` is their part of what it returned."""
    for spec, record in before.items():
        write_source(root, spec, record)
        if record and (removed := record.get("retired_at")):
            _set_retired(root, spec, None, datetime.fromisoformat(removed))


def remove_source(root: Root, spec: str, now: datetime, *, retire: bool) -> int:
    """Take a known source off the list; with `retire` retire its documents too, and return how many.

    The next run takes those out of the corpus that no other source has. If this is interrupted, the same call
    completes it.
    """
    list_sources(root)
    record = read_sources(root).get(spec, {"state": UNREAD})
    removed = record.get("retired_at") or (now.isoformat() if retire else None)
    write_source(root, spec, {**record, "in_list": False, "retired_at": removed})
    return _set_retired(root, spec, None, datetime.fromisoformat(removed)) if retire and removed else 0


def _set_retired(root: Root, spec: str, before: datetime | None, after: datetime | None) -> int:
    """Set `retired_at` of a source's documents to `after` where it is `before`; return how many these are.

    Their text is as it was, so that nothing that the source remembers of its last reading becomes wrong.
    """
    table, retired = seen_table(root), pl.col("retired_at")
    seen = table.read()
    ours = (pl.col("source") == spec) & retired.eq_missing(pl.lit(before, seen.schema["retired_at"]))
    ids = seen.filter(ours)["doc_id"]
    if not ids.is_empty():
        rows = seen.filter(pl.col("doc_id").is_in(ids.implode()))
        changed = pl.when(ours).then(pl.lit(after, seen.schema["retired_at"])).otherwise(retired)
        table.replace(ids.to_list(), rows.with_columns(retired_at=changed))
    return ids.len()
