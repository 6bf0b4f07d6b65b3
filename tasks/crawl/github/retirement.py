"""Retirement of documents that several rows of a listing lead to, by other refs or names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import polars as pl

from storage.root import Root
from storage.state import listed_table

_PLACE = ["repository", "ref", "rest"]


class Claims:
    """What a source's rows led to when it was first asked, and what they have lost since.

    Args:
        root: Where the rows lie.
        spec: The spec of the source.
    """

    def __init__(self, root: Root, spec: str) -> None:
        self._root, self._spec = root, spec

    def lost(self, row: Mapping[str, Any]) -> bool:
        """Note that a row of LISTED no longer leads to its document; tell whether no other row does."""
        others = self._shared.get(row["doc_id"], set())
        others.discard(tuple(row[name] for name in _PLACE))
        return not others

    @cached_property
    def _shared(self) -> dict[str, set[tuple[str, ...]]]:
        rows = listed_table(self._root).read(columns=["source", *_PLACE, "doc_id", "outcome"])
        found = rows.filter(pl.col("source") == self._spec, pl.col("outcome") == "ok")
        shared: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for doc_id, *place in found.filter(pl.len().over("doc_id") > 1).select("doc_id", *_PLACE).iter_rows():
            shared[doc_id].add(tuple(place))
        return dict(shared)


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
