"""Collects one source into raw parts, and updates what is known of its documents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from storage.errors import NothingReadable, SourceError, SourceUnavailable
from storage.root import Root
from storage.state import read_sources, write_source
from tasks.crawl.intake import Intake, SourceReport
from tasks.crawl.source.protocol import Source
from tasks.crawl.source.tombstones import REASON as FORGOTTEN

log = logging.getLogger(__name__)
QUOTA = "quota"  # the reason of a reading that ended with the day's quota: it goes on the next day


def collect(
    source: Source,
    root: Root,
    *,
    run_id: str,
    now: datetime,
    limit: int | None = None,
    options: Mapping[str, object] | None = None,
) -> SourceReport:
    """Read `source` (its first `limit` documents; None: all) and return what came of it.

    New and changed documents go to raw parts before anything judges them; documents that were seen before
    and are as they were cost nothing but their `last_seen_at`. A source that cannot be read, wholly or
    from some point on, leaves its documents in place, marked stale.
    """
    reading = Intake(source, root, run_id, now)
    report, read_as = reading.report, dict(options or {})
    remembered = read_sources(root).get(source.spec, {})
    try:
        version = source.version()
        as_it_was = version is not None and _covers(remembered, version, limit, read_as)
        # A run that dies in here may have taken in part of what is new: should the source go back to what it
        # was, it is not as it was read. Nor is it as of `last_read` where all was noted as seen again.
        _forget_version(root, source.spec, remembered)
        if as_it_was:
            report.state = str(remembered["state"])
            report.listed = report.unchanged = reading.touch_all(remembered["last_read"])
            limit = remembered["limit"]
            log.info("%s is as it was: %d documents unchanged", source.spec, report.unchanged)
        else:
            reading.read(limit)
    except (SourceError, SourceUnavailable) as error:
        version = None
        _broke_off(reading, error, reading.known)
    reading.close()
    record = _record(report, remembered, now)
    write_source(root, source.spec, {**record, "version": version, "limit": limit, "options": read_as})
    return report


def collect_some(
    source: Source, root: Root, covers: Callable[[str], bool], *, run_id: str, now: datetime
) -> SourceReport:
    """Read of `source` what `covers` wants by its id and return what came of it; all else stays as it is.

    A document wanted that the source does not hold any more is retired. Of the source itself nothing is
    remembered but that its next whole reading has to look at everything.
    """
    reading = Intake(source, root, run_id, now)
    wanted = {doc_id: row for doc_id, row in reading.known.items() if covers(doc_id)}
    if source.exhaustive:
        reading.known = wanted  # what it lacks of all others says nothing of them
    # Before anything is kept, for this may die: a skill taken away, retired now and put back would pass as
    # unchanged.
    _forget_version(root, source.spec, read_sources(root).get(source.spec, {}))
    try:
        reading.read(None)
    except (SourceError, SourceUnavailable) as error:
        _broke_off(reading, error, wanted)
    reading.close()
    return reading.report


def _forget_version(root: Root, spec: str, remembered: dict[str, Any]) -> None:
    """Have the next reading of a source look at everything, unless this one ends and says otherwise."""
    if remembered.get("version") is not None:
        write_source(root, spec, {**remembered, "version": None})


def _broke_off(reading: Intake, error: SourceError | SourceUnavailable, wanted: Iterable[str]) -> None:
    """Say why a reading ended before its source did; what was wanted and it did not come to is stale."""
    report = reading.report
    report.state = "partial" if report.listed or error.reason == QUOTA else "failed"
    report.message = str(error)
    report.failed[error.reason] = report.failed.get(error.reason, 0) + 1
    if reading.source.exhaustive or report.state == "failed":
        reading.mark_stale(wanted)
    log.warning("%s", error)


def require_readable(reports: list[dict[str, Any]]) -> None:
    """Let a run go on that read at least one source.

    Raises:
        NothingReadable: It read none; the message holds each source's.
    """
    if reports and all(report["state"] == "failed" for report in reports):
        raise NothingReadable(reports)


def _covers(remembered: dict[str, Any], version: str, limit: int | None, read_as: dict[str, object]) -> bool:
    """Tell whether the last reading went as far as this one is to go, the same way, with nothing failing."""
    as_it_was = remembered.get("version") == version and remembered.get("options") == read_as
    # What was forgotten stays out however often it is met; any other reason may have passed.
    if set(remembered.get("failed") or {}) - {FORGOTTEN} or not as_it_was:
        return False
    if remembered.get("state") == "complete":
        return True
    return bool(remembered.get("state") == "limited" and limit is not None and limit <= remembered["limit"])


def _record(report: SourceReport, remembered: dict[str, Any], now: datetime) -> dict[str, Any]:
    good, whole = report.state in ("complete", "limited"), report.state == "complete"
    return {
        **asdict(report),
        "last_read": now.isoformat() if good else remembered.get("last_read"),
        "last_complete": now.isoformat() if whole else remembered.get("last_complete"),
        "stale_since": None if good else remembered.get("stale_since") or now.isoformat(),
    }
