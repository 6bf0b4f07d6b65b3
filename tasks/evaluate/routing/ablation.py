"""Ablation of the default router: what each field and each leg contributes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from tasks.evaluate.routing.bench import RoutingAnswer, RoutingMethod, Spared, whole
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.baselines.stages import StageRanking
from tasks.retrieve.routing.bm25f import Bm25fSettings, lexical_of
from tasks.retrieve.routing.fit import FitModel
from tasks.retrieve.routing.postings import FIELDS, Postings, postings_of
from tasks.retrieve.routing.router import Router, RouterSettings
from tasks.retrieve.routing.skill import TEMPLATE, Skill

_LEXICAL = RouterSettings(whole=0.0, facets=0.0)
_BM25F = replace(_LEXICAL, described=0.0, again=0.0)
_FIELD = "default-lexical-"
_SETTINGS = {
    "default": RouterSettings(),
    "default-lexical": _LEXICAL,
    "default-dense": RouterSettings(lexical=0.0, described=0.0),
    "default-no-body": RouterSettings(),
    "default-no-facets": RouterSettings(facets=0.0),
    "default-no-described": RouterSettings(described=0.0),
    "default-no-again": RouterSettings(again=0.0),
    **{f"{_FIELD}{field}": _BM25F for field in FIELDS},
}
ABLATIONS = tuple(_SETTINGS)

"""`default`; one leg of it; one field of its lexical leg; and it without one of its parts."""


class Ablations:
    """Makes retrievers of one corpus that share postings and vectors; the order of skills breaks ties."""

    def __init__(
        self, skills: Sequence[Skill], encoder: Encoder, query_encoder: Encoder, fit: FitModel | None = None
    ) -> None:
        self._skills, self._encoder, self._query_encoder, self._fit = skills, encoder, query_encoder, fit

    def router(self, name: str) -> Router:
        """Return one of `ABLATIONS`."""
        ids, names = [skill.doc_id for skill in self._skills], [skill.name for skill in self._skills]
        lexical, sketches = lexical_of(self._postings, fields_of(name)), self._postings.sketches
        settings = _SETTINGS[name]
        fit = self._fit if name == "default" else None
        return Router(ids, names, lexical, sketches, self._vectors, self._query_encoder, settings, fit)

    @functools.cached_property
    def _postings(self) -> Postings:
        return postings_of(self._skills)

    @functools.cached_property
    def _vectors(self) -> Vectors:
        texts = [TEMPLATE.format(name=skill.name, description=skill.description) for skill in self._skills]
        return self._encoder.encode(texts)


def fields_of(name: str) -> Bm25fSettings:
    """Return the constants of BM25F for one of `ABLATIONS`: a field left out weighs 0."""
    usual = Bm25fSettings()
    left_out = {"body"} if name == "default-no-body" else set()
    if name.startswith(_FIELD):
        left_out = set(FIELDS) - {name.removeprefix(_FIELD)}
    a, b, c, d = (
        0.0 if field in left_out else weight for field, weight in zip(FIELDS, usual.weights, strict=True)
    )
    return replace(usual, weights=(a, b, c, d))


_ANSWERED, _FOLDED = 10, 100  # skills that `search` answers with, which is timed; those folded as it does


def as_served(router: Router, encoder: Spared) -> RoutingMethod:
    """Return the default router as a method; `encoder` is its encoder of tasks, which remembers."""
    timed = whole(lambda task, _depth: _answer(router, task), encoder=encoder)

    def run(task: str, depth: int) -> Sequence[StageRanking]:
        (answered,) = timed(task, depth)
        return [replace(answered, doc_ids=deep(router, task, depth))]

    return run


def deep(router: Router, task: str, depth: int) -> list[str]:
    """Return a ranking deeper than anyone asks for; near-identical skills are folded at the first ranks only.

    Folding compares each skill with all before it, which at a depth of a thousand would be all that is timed.
    """
    top = router.rank(task, min(_FOLDED, depth))
    hidden = {doc_id for found in top for doc_id in found.folded}
    rest = (found.doc_id for found in router.rank(task, depth, fold=False))
    shown = [found.doc_id for found in top]
    return list(dict.fromkeys([*shown, *(doc_id for doc_id in rest if doc_id not in hidden)]))[:depth]


def _answer(router: Router, task: str) -> RoutingAnswer:
    found = router.rank(task, _ANSWERED)
    return RoutingAnswer([one.doc_id for one in found], found[0].score, found[0].fit)
