"""The API for Python programs: `open_index` answers what the command does, as dataclasses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flows.commands.queries import open_index as served_index
from flows.commands.queries import require_page_options, search_filters
from flows.settings import load_settings
from storage.errors import Withheld
from storage.root import Root
from tasks.retrieve.page import DEFAULT_METHOD

if TYPE_CHECKING:
    from flows.commands.induction.suggest import ServedSuggester

T = TypeVar("T")
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SkillHit:
    """A skill that a search found, and whose it is; without a default encoder, `fit` is None."""

    rank: int
    doc_id: str
    name: str
    description: str
    score: float | None
    fit: float | None
    folded: list[str]
    kind: str
    source: str
    url: str | None
    commit: str | None
    licence: str | None
    licence_class: str
    risks: list[str] | None
    stale: bool


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The skills that fit a query, best first; `nothing_fits` is true if none is likely to."""

    query: str
    results: list[SkillHit]
    nothing_fits: bool | None
    least_fit: float | None
    index_version: str


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The parts of a skill that a request needs, joined in `context`, and whose they are."""

    doc_id: str
    query: str
    context: str
    nodes: list[dict[str, Any]]
    tokens: int
    document_tokens: int
    over_budget: bool
    source: str
    url: str | None
    commit: str | None
    licence: str | None
    risks: list[str] | None
    stale: bool
    index_version: str


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A task's steps in an order in which they can be done, as `skillery compose --json` prints them."""

    query: str
    steps: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    groups: list[list[int]]
    left_out: list[dict[str, Any]]
    index_version: str


@dataclass(frozen=True, slots=True)
class SuggestedSkill:
    """A learned skill that fits a step, and the runs of agents that did it."""

    rank: int
    skill_id: str
    name: str
    description: str
    code: str
    score: float
    support: int
    sources: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SkillAnswer:
    """A skill as it is served; where its licence keeps its text back, `body` and `front_matter` are None."""

    doc_id: str
    name: str
    description: str | None
    front_matter: dict[str, Any] | None
    body: str | None
    files: list[dict[str, Any]] | None
    risks: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    source: str
    url: str | None
    commit: str | None
    licence: str | None
    licence_class: str
    index_version: str


class SkillIndex:
    """Answers out of what a root serves; a publication between two answers shows in the second.

    Threads may share one. What is wrong is told by the errors of `storage.errors`: `WrongInput`,
    `UnknownDocument`, `Withheld` and `NotPublished`, and `StorageError` for what cannot be read.
    """

    def __init__(self, root: Root) -> None:
        from tasks.retrieve.skills.catalogue import SkillCatalogue  # noqa: PLC0415 (loads what only `show` needs)

        self._index = served_index(root, load_settings())
        self._skills = SkillCatalogue(self._index, root)
        self._learned: ServedSuggester | None = None

    def search(
        self, query: str, k: int = 10, *, min_fit: float | None = None, kinds: Sequence[str] = (),
        licences: Sequence[str] = (), sources: Sequence[str] = (), risks: Sequence[str] = (),
    ) -> SearchAnswer:  # fmt: skip
        """Return the `k` skills that fit a query best; with `min_fit`, 0 to 1, those that fit so well."""
        filters = search_filters([*kinds], [*licences], [*sources], [*risks])
        found = self._index.search(query, k, filters=filters, min_fit=min_fit)
        return _made(SearchAnswer, {**found, "results": [_made(SkillHit, row) for row in found["results"]]})

    def page(self, doc_id: str, query: str, budget: float | None = None) -> PageAnswer:
        """Return the parts of a skill that a query needs; `budget` in tokens, up to 1 a share of them."""
        require_page_options([DEFAULT_METHOD], [budget])
        return _made(PageAnswer, self._index.page(doc_id, query, budget=budget, method=DEFAULT_METHOD))

    def compose(self, task: str, k: int = 5) -> PlanAnswer:
        """Return the plan of a task that needs several skills, with `k` candidates a step."""
        from tasks.retrieve.compose.compose import ComposeOptions, compose  # noqa: PLC0415 (as above)

        return _made(PlanAnswer, compose(self._index, task, ComposeOptions(k=k)))

    def suggest(self, task: str, state: Json, domain: str | None = None, k: int = 5) -> list[SuggestedSkill]:
        """Return the learned skills that fit the next step of a task; `state` is that of the command."""
        from flows.commands.induction.suggest import ServedSuggester  # noqa: PLC0415

        learned = self._learned = self._learned or ServedSuggester(self._index)
        return [_made(SuggestedSkill, row) for row in learned.suggest(task, domain, state, k=k)["results"]]

    def show(self, doc_id: str) -> SkillAnswer:
        """Return a skill by its id, the end of that, or its name."""
        from tasks.retrieve.revisions.show import shown  # noqa: PLC0415

        edition, alias, version = self._skills.edition(doc_id)
        return _made(SkillAnswer, {**shown(edition, alias), "index_version": version})


def pages_for(
    index: SkillIndex, query: str, k: int, budget: float | None
) -> Iterator[tuple[SkillHit, PageAnswer]]:
    """Yield the skills that fit a query, each with its page; none that is withheld, none if nothing fits."""
    found = index.search(query, k)
    for hit in [] if found.nothing_fits else found.results:
        with suppress(Withheld):  # its licence allows no more than to name it
            yield hit, index.page(hit.doc_id, query, budget)


def open_index(root: str | Path | None = None) -> SkillIndex:
    """Return what answers for a root, a folder or `s3://bucket/prefix`; None: SKILLERY_ROOT, or `data`.

    Raises `WrongInput` if a setting, or the root, cannot be used.
    """
    return SkillIndex(Root(root or load_settings().root, remembering=True))


def _made(kind: type[T], answer: Json) -> T:
    return kind(**{field.name: answer[field.name] for field in fields(kind)})  # type: ignore[arg-type]
