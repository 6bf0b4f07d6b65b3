"""The report on a crawl of one source: its numbers of documents, and why some were dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from storage.errors import SourceError, SourceUnavailable
from storage.schemas import Dropped
from tasks.crawl.source.protocol import Source


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The outcome of crawling one source once."""

    source: str
    # `complete` (read to its end), `limited` (by --limit), `partial` (it broke off, or the day's quota ended)
    # or `failed` (nothing could be read).
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


def report_of(
    source: Source,
    state: str,
    counts: Counter[str],
    dropped: Iterable[Dropped],
    error: SourceError | SourceUnavailable | None,
) -> SourceReport:
    """Return the report of a crawl that ended in `state`; `counts` are by field, `listed` to `withdrawn`."""
    failed = Counter(row.reason for row in dropped)
    failed.update([error.reason] if error else [])
    message, usage = str(error) if error else None, source.usage()
    return SourceReport(source.spec, state, **counts, failed=dict(failed), message=message, **asdict(usage))
