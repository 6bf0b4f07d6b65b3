"""The repositories of a listing: which are due to be looked at, and when their documents retire."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import polars as pl

from storage.errors import StorageError
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS
from storage.state import LISTED, listed_table, repositories_table, seen_table
from tasks.crawl.source.identity import apart
from tasks.crawl.source.unchanged import UNREACHED, list_digest

_PLACE = ["repository", "ref", "rest"]
MISSES = 3
MISSED_FOR = timedelta(days=7)
NO_MISSES: dict[str, Any] = {"misses": 0, "first_missed_at": None, "last_missed_at": None, "detail": None}
Fate = Literal["stale", "retired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class ListedRepository:
    """A repository at one ref with the rows that list its skills; it is looked at as a whole."""

    source: str  # the spec of the source
    name: str  # `owner/repo`, as the list writes it
    ref: str  # the first part of the ref that the list names; empty: the default branch
    listed: tuple[dict[str, Any], ...]  # rows of LISTED
    row: dict[str, Any] | None  # the row of REPOSITORIES; None before it was fetched
    digest: str  # the `list_digest` of the listed rows
    # Every skill of the repository is meant; `listed` are those found last.
    whole: bool = False
    earlier: frozenset[str] = frozenset()  # doc_ids that an earlier ref of the list has too

    @property
    def known(self) -> dict[str, Any]:
        """The row of REPOSITORIES; empty before it was fetched."""
        return self.row or {}


def listed_repositories(listed: pl.DataFrame, repositories: pl.DataFrame) -> list[ListedRepository]:
    """Return the repositories of one source's rows of LISTED and REPOSITORIES, sorted by name and ref."""
    rows = {(r["repository"], r["ref"]): r for r in repositories.to_dicts()}
    ordered = listed.select(LISTED.names()).sort("repository", "ref", "rest").to_dicts()
    held: dict[str, frozenset[str]] = defaultdict(frozenset)
    found = []
    for (name, ref), rows_of_ref in groupby(ordered, itemgetter("repository", "ref")):
        group = tuple(rows_of_ref)
        source, written, known = group[0]["source"], group[0]["written"], rows.get((name, ref))
        found.append(
            ListedRepository(source, written, ref, group, known, list_digest(group), earlier=held[name])
        )
        held[name] |= {r["doc_id"] for r in group if r["outcome"] == "ok"}
    return found


def due(
    repositories: Iterable[ListedRepository], now: datetime, recheck_days: float
) -> list[ListedRepository]:
    """Return the repositories to fetch now: first those whose rows changed, then those that failed last time.

    Last, longest ago first, come those not looked at for `recheck_days`: a list may not tell of a change.
    """
    ranked = [(rank, found) for found in repositories if (rank := _rank(found, now, recheck_days))]
    return [found for _, found in sorted(ranked, key=itemgetter(0))]


def _rank(found: ListedRepository, now: datetime, recheck_days: float) -> tuple[int, float, str, str] | None:
    row, name = found.row, (found.name.lower(), found.ref)
    if row is None or row["listed"] != found.digest:
        return (0, 0.0, *name)
    if row["state"] in UNREACHED:
        return (1, 0.0, *name)
    oldest, checked = now - timedelta(days=recheck_days), row["checked_at"]
    # A check in the future was timed by a clock that has been set back since.
    if checked is not None and oldest <= checked <= now:
        return None
    return (2, checked.timestamp() if checked else 0.0, *name)


class RepositoryIds:
    """The ids by which the forge knows the repositories that have had a name; the first owns the name."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def first(self, name: str, repo_id: str) -> str:
        """Return the id of the first repository of a name, which is this one where none is known."""
        return next(iter(self._of(name) or self._known.setdefault(name.lower(), {repo_id: None})))

    def knows(self, name: str) -> bool:
        """Tell whether it is known which repository was the first of a name."""
        return bool(self._of(name))

    def name_of(self, name: str, repo_id: str) -> str:
        """Return what the ids of a repository begin with: a name that was another's is kept apart."""
        return apart(name, repo_id) if self._of(name).keys() - {repo_id} else name

    def _of(self, name: str) -> dict[str, None]:
        key = name.lower()
        if key not in self._known and (brought := self._brought.get(key)):
            with contextlib.suppress(StorageError):
                rows = read_frame(self._root, brought[0], RAW_DOCUMENTS, ["doc_id", "repo_id"])
                if repo_ids := rows.filter(doc_id=brought[1])["repo_id"].drop_nulls().to_list():
                    self._known[key] = {repo_ids[-1]: None}
        return self._known.get(key, {})

    @cached_property
    def _known(self) -> dict[str, dict[str, None]]:
        rows = repositories_table(self._root).read(columns=["repository", "repo_id"])
        known: dict[str, dict[str, None]] = {}
        for name, repo_id in rows.drop_nulls("repo_id").select("repository", "repo_id").iter_rows():
            known.setdefault(name, {})[repo_id] = None
        return known

    @cached_property
    def _brought(self) -> dict[str, tuple[str, str]]:
        """The raw part and the id of the first document of each name, for names whose row was lost."""
        seen = seen_table(self._root).read(columns=["doc_id", "source", "raw_part", "first_seen_at"])
        hosted = seen.filter(pl.col("source").str.contains("^(?:github:|skillsmp)"))
        named = hosted.with_columns(name=pl.col("doc_id").str.to_lowercase().str.extract("^([^/]+/[^/]+)"))
        first = named.sort("first_seen_at").unique("name", keep="first", maintain_order=True)
        rows = first.select("name", "raw_part", "doc_id").iter_rows()
        return {name: (raw_part, doc_id) for name, raw_part, doc_id in rows}


class ReferenceCounts:
    """The references of the rows of a source's list to documents.

    Several rows may lead to one document: at other refs, or under other names of its repository.
    """

    def __init__(self, root: Root, spec: str) -> None:
        self._root, self._spec = root, spec

    def release(self, rows: Iterable[dict[str, Any]]) -> None:
        """Remove the references of rows of LISTED that no longer lead to their documents."""
        for row in rows:
            self._shared[row["doc_id"]].discard(tuple(row[name] for name in _PLACE))

    def unreferenced(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return those of the released rows whose documents no other row references."""
        return [row for row in rows if not self._shared[row["doc_id"]]]

    @cached_property
    def _shared(self) -> defaultdict[str, set[tuple[str, ...]]]:
        """Places of rows by document; documents that only one row references are left out to save memory."""
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
