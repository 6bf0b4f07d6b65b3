"""The list of what is served, by name, and what it can be filtered by; for a reader without a query."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.lance.served import Licences, require_licences
from storage.root import Root
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.search import Filters, provenance
from tasks.retrieve.served_index import ServedIndex, asked_again, classed

FACETS = ("kind", "licence", "source", "risk")


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Some of `total` rows of a version, as `search` returns results, but without rank and score."""

    version: str
    total: int
    rows: list[dict[str, Any]]


Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class KnownValues:
    """How many documents of a version have each value of each of `FACETS`, as `Searcher.values` counts.

    `places` holds the rows of the version in the order of names.
    """

    version: str
    licences: Licences
    places: list[int]
    counts: Counts


class SkillList:
    """Lists what a root serves; threads may share it, and each answer is of one version."""

    def __init__(self, index: ServedIndex, root: Root) -> None:
        self._index, self._root, self._lock = index, root, threading.Lock()
        self._last: KnownValues | None = None

    @asked_again
    def page(self, filters: Filters, begin: int, size: int) -> ListedPage:
        """Return `size` rows that pass filters, in the order of names, from the one at `begin` on.

        Raises `WrongInput` if nothing served has what a filter asks for; `NotPublished` if nothing is served;
        `StorageError` if a file of the root cannot be read.
        """
        with self._index.version() as now:
            order, searcher = self._order(now), now.searcher()
            allowed = searcher.allowed(filters, order.licences)
            places = [place for place in order.places if allowed[place]]
            shown = searcher.rows(places[begin : begin + size])
        rows = [classed(row, order.licences) for row in shown]
        failed, version = self._index.failed_sources(), now.served.version
        named = [{c: row[c] for c in ("doc_id", "name", "description")} for row in rows]
        told = [{**n, **provenance(r, failed)} for n, r in zip(named, rows, strict=True)]
        return ListedPage(version, len(places), told)

    @asked_again
    def known(self) -> KnownValues:
        """Return which values the served documents have; raises as `page`."""
        with self._index.version() as now:
            return self._order(now)

    def _order(self, now: OpenVersion) -> KnownValues:
        licences = require_licences(self._root)
        with self._lock:
            held = self._last
            if held is None or (held.version, held.licences) != (now.served.version, licences):
                held = self._last = _order_of(now, licences)
            return held


def _order_of(now: OpenVersion, licences: Licences) -> KnownValues:
    searcher = now.searcher()
    facts = searcher.facts(list(searcher.places().values()))
    order = sorted(range(len(facts)), key=lambda place: (facts[place].name.casefold(), facts[place].doc_id))
    return KnownValues(now.served.version, licences, order, searcher.values(licences))
