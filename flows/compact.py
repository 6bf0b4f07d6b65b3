"""Compact: merges small files of the served tables, and removes files that no kept version needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from flows.index import announce
from flows.run_page import named, recorded_writing, show_table, tell
from flows.run_record import this_run
from flows.settings import load_settings
from storage.lance.served import require_served
from storage.root import Root
from tasks.retrieve.shells import (
    clean_files,
    compact_served,
    drop_unnamed_blobs,
    keep_versions,
    publish_tables,
    served_encoder,
    trim_snapshots,
)


@flow(name="compact", flow_run_name=named("compact {root}"))
def compact(root: str = "data", wait_minutes: Annotated[float, Field(ge=0)] = 60) -> dict[str, Any]:
    """Merge small files of the tables into a new version, and remove what retention does not keep.

    Bundled files that no document names any more go too.

    The compacted version holds the same rows, byte for byte; otherwise it is refused. The corpus and state
    stay as they are, and so do the last published versions and those younger than a day, and raw snapshots,
    unless `SKILLERY_KEEP_RAW_DAYS` says for how long those that are out of date are kept. The new version
    keeps the publication time of the old one, because no skill in it is fresher.

    Args:
        root: Folder of all that Skillery keeps.
        wait_minutes: How long to wait for another run that writes to this root.

    Raises:
        GateRefused: A compacted table differs from the served one, which stays.
        NotPublished: Nothing is served.
    """
    run, settings = this_run(), load_settings()
    with recorded_writing(Root(root), wait_minutes, run, "compact") as record, record.stage("compact"):
        done, before = compact_served(root), require_served(Root(root))
        version = publish_tables(
            root, done["built"], done["checks"], served_encoder(root), run_id=run, now=before.published_at
        )
        record.checks, record.published = done["checks"], version is not None
        gone = keep_versions(root, settings.keep_versions, now=datetime.now(UTC))
        after, blobs = clean_files(root), drop_unnamed_blobs(root)
        raw = trim_snapshots(root, settings.keep_raw_days, now=datetime.now(UTC))
    tell(f"files before {done['files_before']}, now {after}; versions gone: {', '.join(gone) or 'none'}")
    tell(f"bundled files that no document names any more, removed: {blobs}")
    if raw:
        tell(f"raw is whole from {raw['since']} on; freed: {raw['bytes']} bytes, {raw['rows']} rows")
    tell(f"published: {version}" if version else "nothing to merge; the served version stays")
    show_table("skillery-compaction", done["tables"], "Rows and files of each table, before and after.")
    announce(root, version)
    return {**done, "files_after": after, "blobs_gone": blobs, "gone": gone, "published": version, "raw": raw}
