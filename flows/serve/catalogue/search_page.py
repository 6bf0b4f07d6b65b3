"""The search page: skills that fit a task and why, or all by name, filtered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from flows.commands.queries import search_filters
from flows.serve.answers.service import Service
from flows.serve.catalogue.rendering import link_to, of_one_version, render
from storage.errors import WrongInput
from tasks.models.visible import visible
from tasks.refine.text.words import WORD
from tasks.retrieve.routing.postings import function_terms, term_sequence
from tasks.retrieve.routing.search import Filters
from tasks.retrieve.skills.listing import FACETS, Counts, ListedPage

_SIZE, _MOST = 20, 100  # results of a page, and those of a search that are ever ranked
_VALUES = 12  # of a facet that are shown, the most frequent first
_WORD = re.compile(f"({WORD.pattern})")
_LEAST = 0.005  # of a score's part that is told
# The parts of a score by `RouterSettings`, in the words of a reader.
_PARTS = {
    "lexical": "words in common", "whole": "meaning of the whole task", "facets": "meaning of its parts",
    "described": "words of the description", "again": "words of its further needs", "named": "its name",
    "lead": "first by its words", "learned": "learned from requests", "reranker": "read beside the task",
    "foretold": "requests that were foretold",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchForm:
    """What a reader asks for; `chosen` holds the values chosen of each facet, `page` counts from 1."""

    task: str
    chosen: Mapping[str, list[str]]
    page: int

    def link(self, page: int) -> str:
        """Return the address of another page of the same list."""
        return link_to("/", q=self.task, **self.chosen, page=None if page == 1 else page)


def search_page(service: Service, asked: SearchForm) -> str:
    """Return the page; raises as `ServedIndex.search`, `SkillList.page` and `of_one_version` do."""
    begin = (asked.page - 1) * _SIZE
    filters = search_filters(*(asked.chosen[facet] for facet in FACETS), person=True)
    if asked.task and begin >= _MOST:
        raise WrongInput(f"page {asked.page}: a search ranks {_MOST} skills, on {_MOST // _SIZE} pages")

    def made() -> str | None:
        known, (listed, nothing) = service.listing.known(), _listed(service, asked, filters, begin)
        same = known.version == listed.version
        return _rendered(asked, listed, known.counts, begin, nothing) if same else None

    return of_one_version(made)


def _listed(service: Service, asked: SearchForm, filters: Filters, begin: int) -> tuple[ListedPage, bool]:
    """Return the skills of a page, and whether none that is served seems to fit the task."""
    if not asked.task:
        return service.listing.page(filters, begin, _SIZE), False

    def searched() -> dict[str, Any]:
        return service.index.search(asked.task, _MOST, filters=filters, explain=True)

    found = service.noted("browser", "search", asked.task, searched)
    ranked = found["results"]
    listed = ListedPage(found["index_version"], len(ranked), ranked[begin : begin + _SIZE])
    return listed, bool(ranked and found["nothing_fits"])


def _rendered(asked: SearchForm, listed: ListedPage, counts: Counts, begin: int, nothing: bool) -> str:
    terms = frozenset(term_sequence(asked.task)) - function_terms()
    return render(
        "search.html", asked=asked, listed=listed, begin=begin, facets=_facets(counts, asked),
        results=[_result(row, terms) for row in listed.rows], pages=-(-listed.total // _SIZE), most=_MOST,
        nothing_fits=nothing,
    )  # fmt: skip


def _facets(counts: Counts, asked: SearchForm) -> list[tuple[str, list[tuple[str, int, bool]]]]:
    """Return each facet with its values, how many documents have each, and whether it is chosen."""
    found = []
    for facet in FACETS:
        known = counts[facet]
        chosen = [v for given in asked.chosen[facet] for v in _meant(facet, given, known) or [given]]
        values = dict.fromkeys([*chosen, *list(known)[:_VALUES]])
        found.append((facet, [(v, known.get(v, 0), v in chosen) for v in values]))
    return found


def _meant(facet: str, given: str, known: Iterable[str]) -> list[str]:
    """Return the values that a filter takes for the one given, as `Filters` says."""
    same = {given.casefold(), f"risk.{given}"} if facet in {"licence", "risk"} else {given}
    begins = facet == "source"
    return [v for v in known if v in same or v.casefold() in same or (begins and v.split(":")[0] == given)]


def _result(row: Mapping[str, Any], terms: frozenset[int]) -> dict[str, Any]:
    return {**row, "said": _marked(row["description"] or "", terms), "why": _why(row)}


def _why(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the parts of a score, the largest first, those below zero too."""
    parts = sorted(row.get("parts", {}).items(), key=lambda part: -part[1])
    return [(_PARTS.get(name, name), value) for name, value in parts if abs(value) >= _LEAST]


def _marked(text: str, terms: frozenset[int]) -> Markup:
    """Return a text in which the words of the task are marked."""
    pieces = _WORD.split(visible(text))
    is_word = [place % 2 == 1 for place in range(len(pieces))]
    made = [
        Markup("<mark>{}</mark>").format(piece)
        if word and terms.intersection(term_sequence(piece))
        else Markup.escape(piece)
        for piece, word in zip(pieces, is_word, strict=True)
    ]
    return Markup("").join(made)
