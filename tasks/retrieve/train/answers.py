"""Answers of a task model about a request that it has not seen, with what is right: what fits learn from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Encoder
from tasks.retrieve.compose.confidence import confidence_features
from tasks.retrieve.compose.decompose.chain import counted
from tasks.retrieve.compose.decompose.draft import Draft, DraftStep, Span, words_of
from tasks.retrieve.compose.decompose.feedback import draft_features
from tasks.retrieve.compose.decompose.local import drafted
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.references import filled
from tasks.retrieve.compose.decompose.rounds import HINTS
from tasks.retrieve.compose.decompose.task_model import TaskModel, TaskReading
from tasks.retrieve.compose.ranking import FEATURES, StepRanker, StepRanking
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import RowFacts, Searcher
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.fitting import Choice, Numbers
from tasks.retrieve.train.written import WrittenRequest

_MOST = 8
_LEAST = 0.02  # as `local` tries numbers of steps
_SIZES = (30, 100, 300)  # of small indexes
_KEPT = 0.6  # share of the steps whose servers a small index holds


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A step as it was found, with the rows that fit it: features, and which serve what it was found for.

    `served`: it is a needed one, and the index holds what serves it; `gone`: that was taken out. `size`
    is the number of rows of the index.
    """

    features: Numbers
    right: npt.NDArray[np.bool_]
    served: bool
    gone: bool
    size: int


@dataclass(frozen=True, slots=True)
class HeldAnswers:
    """What a model answers about one request: drafts to choose among, rows for needed and for found steps."""

    counts: Choice | None
    rows: list[Choice]
    found: list[FoundStep]


@dataclass(frozen=True, slots=True)
class ChancePart:
    """What `confidence` is fitted on: features of a first row, and whether it is right; as `FoundStep`."""

    features: Numbers
    right: bool
    served: bool
    gone: bool


@dataclass(frozen=True, slots=True)
class Pool:
    """An index: what scores its rows, what is held of them, and their places by id in lower case."""

    router: Router
    facts: Sequence[RowFacts]
    places: dict[str, int]

    def told(self, rows: Sequence[int]) -> list[RowFacts]:
        """Return what is held of rows."""
        return [self.facts[row] for row in rows]


class Answerer:
    """Asks models about requests over one index, and over small parts of it.

    Args:
        searcher: The index.
        skills: What its rows say, in their order.
        encoder: The index's.
    """

    def __init__(self, searcher: Searcher, skills: Sequence[Skill], encoder: Encoder) -> None:
        facts = searcher.facts(range(len(skills)))
        self._whole, self._skills, self._encoder = (
            Pool(searcher.router, facts, searcher.places()),
            skills,
            encoder,
        )

    def ask(self, request: WrittenRequest, model: TaskModel) -> HeldAnswers:
        """Return what a model answers about a request."""
        reading = model.read(request.text)
        matcher = Matcher(self._whole.router)
        counts, draft = _counts(request, reading, model, matcher)
        if request.servers is None:
            return HeldAnswers(counts, [], [])
        told = request.told()
        spans = [request.steps[k] for k in told]
        steps = [_step(request.text, spans, k) for k in range(len(told))]
        rankings = self._ranked(self._whole, matcher, reading, model, steps)
        serving = [request.servers[k] for k in told]
        rows = [
            Choice(r.features, self._right(self._whole, r, s)) for r, s in zip(rankings, serving, strict=True)
        ]
        meant = [_meant(step, spans) for step in draft.steps]
        wanted = [None if k is None else serving[k] for k in meant]
        found = self._found(self._whole, reading, model, draft, wanted, gone=False)
        for gone in range(len(draft.steps)):
            found += self._without(reading, model, draft, wanted, gone)
        return HeldAnswers(counts, rows, found + self._small(request, reading, model, draft, wanted))

    def _found(
        self, pool: Pool, reading: TaskReading, model: TaskModel, draft: Draft,
        wanted: Sequence[frozenset[str] | None], *, gone: bool, allowed: npt.NDArray[np.bool_] | None = None,
    ) -> list[FoundStep]:  # fmt: skip
        matcher = Matcher(pool.router, allowed)
        found = []
        for ranking, servers in zip(
            self._ranked(pool, matcher, reading, model, draft.steps), wanted, strict=True
        ):
            right = self._right(pool, ranking, servers or frozenset())
            served = bool(servers) and any(d in pool.places for d in servers or ())
            found.append(
                FoundStep(
                    ranking.features,
                    right,
                    served and not gone,
                    bool(servers) and not served,
                    pool.router.rows,
                )
            )
        return found

    def _without(
        self,
        reading: TaskReading,
        model: TaskModel,
        draft: Draft,
        wanted: Sequence[frozenset[str] | None],
        at: int,
    ) -> list[FoundStep]:
        """Return one found step over an index without what serves it; none if nothing does."""
        servers = wanted[at]
        if not servers:
            return []
        allowed = np.ones(self._whole.router.rows, dtype=bool)
        allowed[[self._whole.places[d] for d in servers if d in self._whole.places]] = False
        matcher = Matcher(self._whole.router, allowed)
        ranking = self._ranked(self._whole, matcher, reading, model, draft.steps)[at]
        nothing = np.zeros(len(ranking.rows), dtype=bool)
        return [FoundStep(ranking.features, nothing, served=False, gone=True, size=self._whole.router.rows)]

    def _small(
        self, request: WrittenRequest, reading: TaskReading, model: TaskModel, draft: Draft,
        wanted: Sequence[frozenset[str] | None],
    ) -> list[FoundStep]:  # fmt: skip
        """Return the found steps over a small index, drawn by the request's text; of one request in three."""
        chance = np.random.default_rng(int(hashlib.sha256(request.text.encode()).hexdigest()[:8], 16))
        if chance.random() > 1 / 3:
            return []
        kept = {d for servers in request.servers or () if chance.random() < _KEPT for d in servers}
        others = {d for servers in request.servers or () for d in servers} - kept
        size, places = int(chance.choice(_SIZES)), self._whole.places
        free = [p for d, p in places.items() if d not in kept and d not in others]
        rows = sorted({places[d] for d in kept if d in places} | set(chance.choice(free, size).tolist()))
        skills = [self._skills[row] for row in rows]
        router = Router.from_documents(skills, self._encoder, vectors=self._whole.router.vectors[rows])
        facts = [self._whole.facts[row] for row in rows]
        pool = Pool(router, facts, {fact.doc_id.lower(): k for k, fact in enumerate(facts)})
        return self._found(pool, reading, model, draft, wanted, gone=False)

    def _ranked(
        self, pool: Pool, matcher: Matcher, reading: TaskReading, model: TaskModel, steps: Sequence[DraftStep]
    ) -> list[StepRanking]:
        sought = model.queries(reading, [step.spans for step in steps])
        return StepRanker(pool.told, matcher, np.zeros(len(FEATURES))).rank(reading.task, steps, sought)

    def _right(self, pool: Pool, ranking: StepRanking, servers: frozenset[str]) -> npt.NDArray[np.bool_]:
        serving = {pool.places[d] for d in servers if d in pool.places}
        return np.array([row in serving for row in ranking.rows], dtype=bool)


def _counts(
    request: WrittenRequest, reading: TaskReading, model: TaskModel, matcher: Matcher
) -> tuple[Choice | None, Draft]:
    """Return the drafts with other numbers of steps to choose among, and the likeliest one."""
    found = counted(model.labels(reading), model.moves, _MOST)
    likeliest = drafted(reading, found, found.likeliest())
    tried = {n: drafted(reading, found, n) for n, p in enumerate(found.shares.tolist()) if p >= _LEAST}
    hints = matcher.hints(tuple(step.text for step in likeliest.steps) or (request.text,), HINTS)
    features = np.stack([draft_features(draft, hints, matcher) for draft in tried.values()])
    right = np.array([len(draft.steps) == len(request.steps) for draft in tried.values()])
    return (Choice(features, right) if len(tried) > 1 else None), likeliest


def _step(task: str, spans: Sequence[Sequence[Span]], number: int) -> DraftStep:
    own = tuple(spans[number])
    return DraftStep(filled(task, spans, number), own, words_of(task, own))


def _meant(step: DraftStep, needed: Sequence[Sequence[Span]]) -> int | None:
    """Return the needed step with which a found one shares most characters; None if it shares none."""
    shared = [sum(max(0, min(b, d) - max(a, c)) for a, b in step.spans for c, d in own) for own in needed]
    best = int(np.argmax(shared)) if shared else 0
    return best if shared and shared[best] else None


def chances(answers: Sequence[HeldAnswers], ranking: Numbers) -> list[ChancePart]:
    """Return what `confidence` is fitted on, where rows are ranked by some weights."""
    parts = []
    for answer in answers:
        for step in answer.found:
            scores = step.features @ ranking
            order = np.argsort(-scores, kind="stable")
            ranked = StepRanking(tuple(order.tolist()), scores[order], step.features[order])
            features = confidence_features(ranked, step.size)
            parts.append(ChancePart(features, bool(step.right[order[0]]), step.served, step.gone))
    return parts
