"""Counts what a crawl of one source meets, for the report of that source."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

import polars as pl

from storage.errors import SourceError, SourceUnavailable
from storage.schemas import DROPPED, Dropped, to_frame
from tasks.crawl.source.protocol import RequestUsage


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The outcome of crawling one source once."""

    source: str
    # `complete` (read to its end), `limited` (as far as --limit goes), `partial` (it broke off, or the day's
    # quota ended) or `failed` (nothing could be read).
    state: str = "complete"
    listed: int = 0  # documents looked at, whatever came of them
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    retired: int = 0  # their source no longer holds them
    withdrawn: int = 0  # they may no longer be served, as after a takedown
    failed: dict[str, int] = field(default_factory=dict)  # drops by reason, and why the source broke off
    requests: int = 0  # sent, retries included
    quota_left: int | None = None  # requests left of the day's quota; None: there is no quota
    message: str | None = None


class Tally:
    """Counts what a crawl meets, and collects the rows that it drops."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._counts: Counter[str] = Counter()
        self._dropped: list[Dropped] = []

    @property
    def listed(self) -> int:
        """How many documents were looked at."""
        return self._counts["listed"]

    @property
    def asked(self) -> int:
        """How many documents count against a limit: those looked at and those dropped."""
        return self.listed + len(self._dropped)

    def count(self, *fields: str, number: int = 1) -> None:
        """Add a number of documents to each of these fields of the report."""
        self._counts.update(dict.fromkeys(fields, number))

    def drop(self, row: Dropped) -> None:
        """Collect a row that is dropped."""
        self._dropped.append(row)

    def dropped(self, run_id: str) -> pl.DataFrame:
        """Return the rows that were dropped."""
        return to_frame(self._dropped, DROPPED, run_id=run_id)

    def unreadable(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the ids that are there but were dropped, and prefixes of ids in unreadable folders."""
        there = [row for row in self._dropped if row.lost_to is None]
        folders = tuple(f"{row.doc_id}/" for row in there if row.reason == "unreadable")
        return frozenset(row.doc_id for row in there), folders

    def report(
        self, state: str, error: SourceError | SourceUnavailable | None, usage: RequestUsage
    ) -> SourceReport:
        """Return the report of a crawl that ended in `state`, broken off by `error` or not."""
        failed = Counter(row.reason for row in self._dropped)
        failed.update([error.reason] if error else [])
        network = {"failed": dict(failed), "message": str(error) if error else None, **asdict(usage)}
        return SourceReport(self._source, state, **self._counts, **network)  # type: ignore[arg-type]
