"""Finds which repositories of a listing are due to be looked at."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import polars as pl

from storage.state import LISTED

# States after a look that did not reach the repository.
OPEN = ("failed", "missing", "denied")


@dataclass(frozen=True, slots=True)
class Unit:
    """A repository at one ref with the rows that list its skills; it is looked at as a whole."""

    source: str  # the spec of the source
    repository: str  # `owner/repo`, as the list writes it
    ref: str  # the first part of the ref that the list names; empty: the default branch
    listed: tuple[dict[str, Any], ...]  # rows of LISTED
    row: dict[str, Any] | None  # the row of REPOSITORIES; None before the first look
    digest: str  # of the listed rows; it changes when the list does
    # Every skill of the repository is meant; `listed` are those of the last look.
    whole: bool = False
    ceded: frozenset[str] = frozenset()  # doc_ids that an earlier ref of the list has too

    @property
    def known(self) -> dict[str, Any]:
        """The row of REPOSITORIES; empty before the first look."""
        return self.row or {}


def units_of(listed: pl.DataFrame, repositories: pl.DataFrame) -> list[Unit]:
    """Return the units of one source's rows of LISTED and REPOSITORIES, sorted by repository and ref."""
    rows = {(r["repository"], r["ref"]): r for r in repositories.to_dicts()}
    ordered = listed.select(LISTED.names()).sort("repository", "ref", "rest").to_dicts()
    held: dict[str, frozenset[str]] = defaultdict(frozenset)
    units = []
    for (name, ref), found in groupby(ordered, itemgetter("repository", "ref")):
        group = tuple(found)
        source, written, known = group[0]["source"], group[0]["written"], rows.get((name, ref))
        units.append(Unit(source, written, ref, group, known, digest(group), ceded=held[name]))
        held[name] |= {r["doc_id"] for r in group if r["outcome"] == "ok"}
    return units


def digest(listed: Iterable[dict[str, Any]]) -> str:
    """Return the digest of a repository's rows: their skills, and when each was updated."""
    said = [[r["rest"], r["updated_at"] and r["updated_at"].isoformat()] for r in listed]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:24]


def due(units: Iterable[Unit], now: datetime, recheck_days: float) -> list[Unit]:
    """Return the units to look at now: first those whose rows changed, then those that failed last time.

    Last, longest ago first, come those not looked at for `recheck_days`: a list may not tell of a change.
    """
    ranked = [(rank, unit) for unit in units if (rank := _rank(unit, now, recheck_days))]
    return [unit for _, unit in sorted(ranked, key=itemgetter(0))]


def _rank(unit: Unit, now: datetime, recheck_days: float) -> tuple[int, float, str, str] | None:
    row, name = unit.row, (unit.repository.lower(), unit.ref)
    if row is None or row["listed"] != unit.digest:
        return (0, 0.0, *name)
    if row["state"] in OPEN:
        return (1, 0.0, *name)
    oldest, checked = now - timedelta(days=recheck_days), row["checked_at"]
    # A look in the future was timed by a clock that has been set back since.
    if checked is not None and oldest <= checked <= now:
        return None
    return (2, checked.timestamp() if checked else 0.0, *name)
