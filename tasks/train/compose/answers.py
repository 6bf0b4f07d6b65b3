"""Answers of a task model about a request that it has not seen, with what is right: what fits learn from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Encoder
from tasks.retrieve.compose.chain import counted
from tasks.retrieve.compose.drafts import Draft, DraftStep, Span, words_of
from tasks.retrieve.compose.local import BEYOND, LEAST, drafted, filled
from tasks.retrieve.compose.matches import Matcher
from tasks.retrieve.compose.ranking import RANKING_FEATURES, StepRanker, StepRanking, confidence_features
from tasks.retrieve.compose.rounds import HINTS, draft_features
from tasks.retrieve.compose.task_model import TaskModel
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import RowFacts, Searcher
from tasks.train.compose.requests import WrittenRequest
from tasks.train.logistic import Choice, Numbers

_MOST = 8
_SIZES = (30, 100, 300)  # of small indexes
_SMALL_SHARE = 1 / 3  # of the requests are asked about a small index too
_KEPT = 0.6  # share of the steps whose servers a small index holds


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A step as it was found, with the rows that fit it: features, and which serve what it was found for.

    `served`: it is a needed one, and the index holds what serves it; `gone`: that was taken out.
    """

    features: Numbers
    cosines: Numbers
    right: npt.NDArray[np.bool_]
    served: bool
    gone: bool


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
class RowPool:
    """An index: what scores its rows, what is held of them, and their places by id in lower case."""

    router: Router
    held: Sequence[RowFacts]
    places: dict[str, int]

    def facts(self, rows: Sequence[int]) -> list[RowFacts]:
        """Return what is held of rows."""
        return [self.held[row] for row in rows]

    def rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Return what is held of rows by name."""
        return [fact._asdict() for fact in self.facts(places)]

    def right(self, ranking: StepRanking, servers: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Return which rows of a ranking are among some servers."""
        serving = {self.places[d] for d in servers if d in self.places}
        return np.array([row in serving for row in ranking.rows], dtype=bool)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, the model that has not seen it, the steps that it found, and what serves each."""

    request: WrittenRequest
    model: TaskModel
    steps: Sequence[DraftStep]
    wanted: Sequence[frozenset[str]]

    def rank(
        self, pool: RowPool, steps: Sequence[DraftStep], allowed: npt.NDArray[np.bool_] | None = None
    ) -> list[StepRanking]:
        """Return the rankings of steps over a pool, in the order in which rows were found."""
        matcher = Matcher(pool, self.model, self.request.text, allowed)
        return StepRanker(matcher, np.zeros(len(RANKING_FEATURES))).rank(self.request.text, steps)

    def found(self, pool: RowPool) -> list[FoundStep]:
        """Return the found steps over a pool."""
        rankings = self.rank(pool, self.steps)
        return [self._found_step(pool, *each) for each in zip(rankings, self.wanted, strict=True)]

    def _found_step(self, pool: RowPool, ranking: StepRanking, servers: frozenset[str]) -> FoundStep:
        served = any(server in pool.places for server in servers)
        right = pool.right(ranking, servers)
        gone = bool(servers) and not served
        return FoundStep(ranking.features, ranking.cosines, right, served, gone)

    def without(self, pool: RowPool, at: int) -> FoundStep:
        """Return a found step over a pool without what serves it."""
        allowed = np.ones(pool.router.rows, dtype=bool)
        allowed[[pool.places[d] for d in self.wanted[at] if d in pool.places]] = False
        ranking = self.rank(pool, self.steps, allowed)[at]
        nothing = np.zeros(len(ranking.rows), dtype=bool)
        return FoundStep(ranking.features, ranking.cosines, nothing, served=False, gone=True)


class Answerer:
    """Asks models about requests over one index, and over small parts of it.

    Args:
        searcher: The index.
        encoder: The index's.
    """

    def __init__(self, searcher: Searcher, encoder: Encoder) -> None:
        rows = range(searcher.router.rows)
        self._whole = RowPool(searcher.router, searcher.facts(rows), searcher.places())
        self._skills, self._encoder = searcher.skills(rows), encoder

    def ask(self, request: WrittenRequest, model: TaskModel) -> HeldAnswers:
        """Return what a model answers about a request."""
        counts, draft = _counts(request, model, Matcher(self._whole, model, request.text))
        if request.servers is None:
            return HeldAnswers(counts, [], [])
        told = request.told()
        spans = [request.steps[k] for k in told]
        serving = [request.servers[k] for k in told]
        meant = [_meant(step, spans) for step in draft.steps]
        wanted = [frozenset[str]() if k is None else serving[k] for k in meant]
        asked = _Asked(request, model, draft.steps, wanted)
        rankings = asked.rank(self._whole, [_step(request.text, spans, k) for k in range(len(told))])
        rows = [
            Choice(r.features, self._whole.right(r, own)) for r, own in zip(rankings, serving, strict=True)
        ]
        found = asked.found(self._whole)
        found += [asked.without(self._whole, at) for at, servers in enumerate(wanted) if servers]
        small = self._small(request)
        return HeldAnswers(counts, rows, found + (asked.found(small) if small else []))

    def _small(self, request: WrittenRequest) -> RowPool | None:
        """Return a small index, drawn by the request's text; None for two requests in three."""
        chance = np.random.default_rng(int(hashlib.sha256(request.text.encode()).hexdigest()[:8], 16))
        if chance.random() > _SMALL_SHARE:
            return None
        servers, places = request.servers or (), self._whole.places
        kept = {d for own in servers if chance.random() < _KEPT for d in own}
        gone = {d for own in servers for d in own} - kept
        free = [place for doc_id, place in places.items() if doc_id not in kept | gone]
        size = min(int(chance.choice(_SIZES)), len(free))
        drawn = chance.choice(free, size, replace=False).tolist()
        rows = sorted({places[d] for d in kept if d in places} | set(drawn))
        vectors = self._whole.router.vectors[rows]
        router = Router.from_documents([self._skills[row] for row in rows], self._encoder, vectors=vectors)
        facts = self._whole.facts(rows)
        return RowPool(router, facts, {fact.doc_id.lower(): place for place, fact in enumerate(facts)})


def _counts(request: WrittenRequest, model: TaskModel, matcher: Matcher) -> tuple[Choice | None, Draft]:
    """Return the drafts with other numbers of steps to choose among, and the likeliest one."""
    reading = model.read(request.text)
    found = counted(model.labels(reading), model.moves, _MOST + BEYOND)
    shares = found.shares[: _MOST + 1]
    likeliest = drafted(reading, found, int(shares.argmax()))
    tried = {n: drafted(reading, found, n) for n, share in enumerate(shares.tolist()) if share >= LEAST}
    whole = DraftStep(request.text, ((0, len(request.text)),))
    hints = matcher.hints(likeliest.steps or (whole,), HINTS)
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
            ranked = StepRanking(
                tuple(order.tolist()), scores[order], step.features[order], step.cosines[order]
            )
            features = confidence_features(ranked)
            parts.append(ChancePart(features, bool(step.right[order[0]]), step.served, step.gone))
    return parts
