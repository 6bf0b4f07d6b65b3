"""Collects one source into raw parts, and remembers how far it was read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from storage.errors import NothingReadable, SkilleryError, SourceError, SourceUnavailable
from storage.root import Root
from storage.state import read_sources, write_source
from tasks.crawl.intake import Intake
from tasks.crawl.report import SourceReport
from tasks.crawl.seen import Covers
from tasks.crawl.source.protocol import Source
from tasks.crawl.source.tombstones import REASON as FORGOTTEN

log = logging.getLogger(__name__)


def collect(
    source: Source,
    root: Root,
    *,
    run_id: str,
    now: datetime,
    limit: int | None = None,
    options: Mapping[str, object] | None = None,
) -> SourceReport:
    """Read `source` (its first `limit` documents; None: all) and report what came of it.

    New and changed documents go to raw parts before any filter; of unchanged ones only `last_seen_at` is
    written. If the source cannot be read to its end, documents it did not yield stay, marked stale. With
    other `options` of reading than the last time, all documents are read again.
    """
    intake = Intake(source, root, run_id, now)
    read_as, remembered = dict(options or {}), read_sources(root).get(source.spec, {})
    version: str | None = None
    try:
        found = source.version()
        as_it_was = found is not None and _covers(remembered, found, limit, read_as)
        # If this run dies, part of the new documents is on disk: the last version no longer tells what is
        # kept, even if the source goes back to it.
        _forget_version(root, source.spec, remembered)
        if as_it_was:
            unchanged = intake.repeat(str(remembered["state"]), remembered["last_read"])
            limit = remembered["limit"]
            log.info("%s is as it was: %d documents unchanged", source.spec, unchanged)
        else:
            intake.read(limit)
        version = found
    except (SourceError, SourceUnavailable) as error:
        intake.break_off(error)
    except Exception as error:
        intake.break_off(_unforeseen(source.spec, error))
    report = intake.close()
    read = {**_record(report, remembered, now), "version": version, "limit": limit, "options": read_as}
    write_source(root, source.spec, {**remembered, **read})
    return report


def collect_some(source: Source, root: Root, covers: Covers, *, run_id: str, now: datetime) -> SourceReport:
    """Read the documents of `source` whose ids are covered, retire those it lacks, and report.

    The remembered version is deleted, so that the next complete reading looks at everything.
    """
    intake = Intake(source, root, run_id, now, covers)
    # Before anything is kept: if this run dies, a skill retired and put back must not count as unchanged.
    _forget_version(root, source.spec, read_sources(root).get(source.spec, {}))
    try:
        intake.read()
    except (SourceError, SourceUnavailable) as error:
        intake.break_off(error)
    except Exception as error:
        intake.break_off(_unforeseen(source.spec, error))
    return intake.close()


def _unforeseen(spec: str, error: Exception) -> SourceUnavailable:
    """Return an error that nobody foresaw as one of its source; errors of the root are raised as they are."""
    if isinstance(error, SkilleryError | OSError | MemoryError):
        raise error
    log.exception("%s failed in a way that was not foreseen", spec)
    detail = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return SourceUnavailable(spec, "unforeseen", f"{detail}; what was read before is kept")


def _forget_version(root: Root, spec: str, remembered: dict[str, Any]) -> None:
    if remembered.get("version") is not None:
        write_source(root, spec, {**remembered, "version": None})


def require_readable(reports: list[dict[str, Any]]) -> None:
    """Raise NothingReadable, with the message of each source, if a run could read none."""
    if reports and all(report["state"] == "failed" for report in reports):
        raise NothingReadable(reports)


def _covers(remembered: dict[str, Any], version: str, limit: int | None, read_as: dict[str, object]) -> bool:
    """Return whether the last reading covered this version, to the limit of this one, without a failure."""
    as_it_was = remembered.get("version") == version and remembered.get("options") == read_as
    # A forgotten document stays out whenever it is met; any other failure may have passed.
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
