"""Crawl: reads every source into raw parts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow

from flows.run_page import show_table, tell_source
from flows.run_record import new_run_id
from flows.settings import load_settings
from storage.locks import writer_lock
from storage.root import Root
from storage.state import read_sources
from tasks.crawl.collect import require_readable
from tasks.crawl.shells import crawl_source
from tasks.crawl.source_list import list_sources, restore_sources, specs_to_read
from tasks.crawl.sources import normal_spec

_COLUMNS = (
    "source", "state", "listed", "new", "changed", "unchanged", "retired", "withdrawn", "failed", "requests",
    "quota_left", "message",
)  # fmt: skip


@flow(name="crawl", flow_run_name="crawl {root}")
def crawl(
    root: str = "data", sources: list[str] | None = None, limit: int | None = None, run_id: str | None = None
) -> list[dict[str, Any]]:
    """Crawl sources into raw/ below the root; unchanged documents are only marked as seen.

    The sources are put on the list of sources; one that is new to it and cannot be read is taken off again.

    Args:
        root: Folder of all that Skillery keeps.
        sources: Specs such as `skillsmp`, `github:OWNER/REPO`, `git+URL[@REF]`; empty: all on the list.
        limit: How many documents of each source to read, from its first on; empty: all.
        run_id: Filled in by nightly.
    """
    settings = load_settings().crawl()
    place, run, now = Root(root), run_id or new_run_id(), datetime.now(UTC)
    with writer_lock(place):
        known = read_sources(place)
        given = [spec if spec in known else normal_spec(spec) for spec in sources or []]
        specs = specs_to_read(place) if sources is None else given
        # On the list before they are read: a run that is interrupted is resumed by the next.
        before = list_sources(place, specs, now)
        reports = [
            crawl_source(root, spec, run_id=run, now=now, limit=limit, settings=settings)
            for spec in dict.fromkeys(specs)
        ]
        unread = [r for r in reports if r["state"] == "failed" and r["source"] in before]
        restore_sources(place, {r["source"]: before[r["source"]] for r in unread})
    for report in unread:
        report["message"] += "; it was not added to the list of sources"
    for report in reports:
        tell_source(report)
    rows = [{c: str(r[c]) if c == "failed" else r[c] for c in _COLUMNS} for r in reports]
    show_table("skillery-crawl", rows, "What each source brought.")
    require_readable(reports)
    return reports
