"""What becomes of a repository that could not be had: when its skills stay, and when they go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

MISSES = 3
MISSED_FOR = timedelta(days=7)

Fate = Literal["stale", "retired", "withdrawn"]


def fate_of(reason: str, row: dict[str, Any], now: datetime) -> tuple[Fate, dict[str, Any]]:
    """Return what becomes of a repository's skills, and what is to be remembered of it.

    A repository that is not found, or refused, may be renamed, private for a day, or a forge's mistake: its
    skills are retired after 3 misses in a row over at least 7 days. What was withdrawn by law goes at once.
    Any other reason is none of the repository's doing, and counts for nothing.

    Args:
        reason: Why it could not be had: `missing`, `denied`, `withdrawn`, or another.
        row: What was known of it: `misses`, `first_missed_at`, `state`.
        now: When it was looked at.
    """
    if reason == "withdrawn":
        return "withdrawn", {"state": "withdrawn"}
    if reason not in ("missing", "denied"):
        return "stale", {"state": "failed"}
    misses, first = (row.get("misses") or 0) + 1, row.get("first_missed_at") or now
    gone = misses >= MISSES and now - first >= MISSED_FOR
    known = {"misses": misses, "first_missed_at": first, "last_missed_at": now}
    return ("retired" if gone else "stale"), {**known, "state": "gone" if gone else reason}


FOUND: dict[str, Any] = {"misses": 0, "first_missed_at": None, "last_missed_at": None, "detail": None}
