"""Finds which repositories of a listing are due to be fetched, and why."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import polars as pl

from storage.state import LISTED

Why: TypeAlias = Literal["changed", "again", "recheck"]
_ORDER: dict[Why, int] = {"changed": 0, "again": 1, "recheck": 2}
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
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in listed.select(LISTED.names()).sort("repository", "ref", "rest").to_dicts():
        groups.setdefault((row["repository"], row["ref"]), []).append(row)
    held: dict[str, frozenset[str]] = defaultdict(frozenset)
    units = []
    for (name, ref), group in groups.items():
        source, written = group[0]["source"], group[0]["written"]
        known, said = rows.get((name, ref)), digest(group)
        units.append(Unit(source, written, ref, tuple(group), known, said, ceded=held[name]))
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
    reasons = [(unit, why) for unit in units if (why := _why(unit, now, recheck_days))]
    return [unit for unit, why in sorted(reasons, key=lambda pair: _place(*pair))]


def _why(unit: Unit, now: datetime, recheck_days: float) -> Why | None:
    row = unit.row
    if row is None or row["listed"] != unit.digest:
        return "changed"
    if row["state"] in OPEN:
        return "again"
    oldest, checked = now - timedelta(days=recheck_days), row["checked_at"]
    # A look in the future was timed by a clock that has been set back since.
    return "recheck" if checked is None or not oldest <= checked <= now else None


def _place(unit: Unit, why: Why) -> tuple[int, float, str, str]:
    checked = unit.row["checked_at"].timestamp() if why == "recheck" and unit.row else 0.0
    return _ORDER[why], checked, unit.repository.lower(), unit.ref
