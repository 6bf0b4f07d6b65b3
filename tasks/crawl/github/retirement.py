"""Retirement of documents: after which misses, and once no row of a listing leads to them any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import polars as pl

from storage.root import Root
from storage.state import listed_table

_PLACE = ["repository", "ref", "rest"]
MISSES = 3
MISSED_FOR = timedelta(days=7)
FOUND: dict[str, Any] = {"misses": 0, "first_missed_at": None, "last_missed_at": None, "detail": None}
Fate = Literal["stale", "retired", "withdrawn"]


class Claims:
    """The claims that the rows of a source's list have on documents.

    A row claims the document that it leads to. Several rows may claim one document: at other refs, or under
    other names of its repository.
    """

    def __init__(self, root: Root, spec: str) -> None:
        self._root, self._spec = root, spec

    def release(self, rows: Iterable[dict[str, Any]]) -> None:
        """Remove the claims of rows of LISTED that no longer lead to their documents."""
        for row in rows:
            self._shared[row["doc_id"]].discard(tuple(row[name] for name in _PLACE))

    def unclaimed(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return those of the released rows whose documents no other row claims."""
        return [row for row in rows if not self._shared[row["doc_id"]]]

    @cached_property
    def _shared(self) -> defaultdict[str, set[tuple[str, ...]]]:
        """Places of rows by document; documents that only one row claims are left out to save memory."""
        rows = listed_table(self._root).read(columns=["source", *_PLACE, "doc_id", "outcome"])
        found = rows.filter(pl.col("source") == self._spec, pl.col("outcome") == "ok")
        shared: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
        for doc_id, *place in found.filter(pl.len().over("doc_id") > 1).select("doc_id", *_PLACE).iter_rows():
            shared[doc_id].add(tuple(place))
        return shared


def fate_of(reason: str, row: dict[str, Any], now: datetime) -> tuple[Fate, dict[str, Any]]:
    """Return what becomes of the skills of a repository that could not be had, and the fields to remember.

    A repository that is missing or denied may be renamed or private for a day: its skills are retired after
    `MISSES` misses in a row over at least `MISSED_FOR`, up to `now`. Skills that were withdrawn by law go at
    once. Any other reason is a failure of the network or the forge, and no miss.
    """
    if reason == "withdrawn":
        return "withdrawn", {"state": "withdrawn"}
    if reason not in ("missing", "denied"):
        return "stale", {"state": "failed"}
    misses, first = (row.get("misses") or 0) + 1, row.get("first_missed_at") or now
    gone = misses >= MISSES and now - first >= MISSED_FOR
    known = {"misses": misses, "first_missed_at": first, "last_missed_at": now}
    return ("retired" if gone else "stale"), {**known, "state": "gone" if gone else reason}
