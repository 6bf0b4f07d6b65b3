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
# States in which the last look did not tell how the repository is.
OPEN = ("failed", "missing", "denied")


@dataclass(frozen=True, slots=True)
class Unit:
    """A repository at one ref, with the rows that list its skills: what is looked at in one go.

    Args:
        source: The spec of the source.
        repository: `owner/repo`, as the list writes it.
        ref: First part of the ref that the list names; empty for the default branch.
        listed: Rows of LISTED.
        row: What is known of it, a row of REPOSITORIES, None before the first look.
        digest: Of the rows listed: a list that says something new has another.
        whole: Every skill of the repository is meant; the rows are what was there at the last look.
        ceded: The doc_ids that the list names at another ref too, which comes before this one.
    """

    source: str
    repository: str
    ref: str
    listed: tuple[dict[str, Any], ...]
    row: dict[str, Any] | None
    digest: str
    whole: bool = False
    ceded: frozenset[str] = frozenset()

    @property
    def known(self) -> dict[str, Any]:
        """What is known of it; nothing before the first look."""
        return self.row or {}


def units_of(listed: pl.DataFrame, repositories: pl.DataFrame) -> list[Unit]:
    """Return the units of one source's rows, sorted by repository and ref.

    Args:
        listed: Rows of LISTED of one source.
        repositories: Rows of REPOSITORIES of that source.
    """
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
    """Return the digest of what a list says of a repository: which skills, and when each was updated."""
    said = [[r["rest"], r["updated_at"] and r["updated_at"].isoformat()] for r in listed]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:24]


def due(units: Iterable[Unit], now: datetime, recheck_days: float) -> list[Unit]:
    """Return the units that are to be looked at now, what the list says changed first.

    That is what is listed otherwise than at the last look, what could not be looked at then, and, longest
    ago first, what was not looked at for `recheck_days`: a repository may change without its list saying so.
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
    # What was looked at after now was looked at by a clock that has been set back since.
    return "recheck" if checked is None or not oldest <= checked <= now else None


def _place(unit: Unit, why: Why) -> tuple[int, float, str, str]:
    checked = unit.row["checked_at"].timestamp() if why == "recheck" and unit.row else 0.0
    return _ORDER[why], checked, unit.repository.lower(), unit.ref
