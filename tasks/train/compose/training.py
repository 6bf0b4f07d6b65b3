"""Training of all that composing needs: `python -m tasks.train.compose.training ROOT`, about an hour.

ROOT serves the index whose rows are named by the requests in `REQUESTS`. What is fitted on the task model's
answers is fitted on those of models that have not seen the request; standard output tells how well they do.
Seeds are fixed; rounding differs between processors.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from storage.errors import WrongInput
from storage.lance.served import require_served
from storage.root import Root
from tasks import models
from tasks.evaluate.measures.statistics import auroc
from tasks.models.adapted_encoder import GRAPH
from tasks.models.protocols import Encoder
from tasks.retrieve.compose.dependencies import CLASSES, PairModel, pair_features, step_texts
from tasks.retrieve.compose.dependencies import FILE as PAIRS
from tasks.retrieve.compose.drafts import Draft, DraftStep, Span, words_of
from tasks.retrieve.compose.local import BEYOND, LEAST, counted, drafted, filled
from tasks.retrieve.compose.ranking import (
    CONFIDENCE_FEATURES,
    FITTED,
    RANKING_FEATURES,
    Matcher,
    StepRanker,
    StepRanking,
    confidence_features,
)
from tasks.retrieve.compose.rounds import FEEDBACK_FEATURES, HINTS, draft_features
from tasks.retrieve.compose.task_model import FILE, TaskModel
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import RowFacts, Searcher
from tasks.retrieve.served_index import ServedIndex
from tasks.train.compose.task_model import (
    Recipe,
    WrittenRequest,
    lessons,
    pairs_of,
    read_written,
    train_average,
    train_network,
    write_graph,
)
from tasks.train.logistic import Choice, Numbers, fit_chance, fit_choice
from tasks.train.splits import folds_of

FOLDS = 3
FEATURES = {
    "feedback": FEEDBACK_FEATURES, "ranking": RANKING_FEATURES, "confidence": CONFIDENCE_FEATURES,
    "gap": ("least",),
}  # fmt: skip
_ORDERS = 2  # in which the network learns; held-out answers are those of one order
_ASKED = 300  # requests of each fold; what is fitted has a dozen weights
_PENALTY = 0.001
_LOST = 0.02  # share of the steps whose first row is right that may be taken for gaps
_PAIR_PENALTY, _LEAST = 10.0, 3  # of weights of pairs; a feature holds of so many at least
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
        needed = [_step(request.text, spans, k) for k in range(len(told))]
        rankings = _ranked(self._whole, request, model, needed)
        rows = [
            Choice(r.features, self._whole.right(r, own)) for r, own in zip(rankings, serving, strict=True)
        ]
        found = [each for pool in (self._whole, self._small(request)) if pool
                 for each in _found(pool, request, model, draft.steps, wanted)]  # fmt: skip
        return HeldAnswers(counts, rows, found + self._without(request, model, draft.steps, wanted))

    def _without(
        self, request: WrittenRequest, model: TaskModel, steps: Sequence[DraftStep],
        wanted: Sequence[frozenset[str]],
    ) -> list[FoundStep]:  # fmt: skip
        """Return each found step that something serves, over the index without that."""
        found = []
        for at, servers in enumerate(wanted):
            if servers:
                allowed = np.ones(self._whole.router.rows, dtype=bool)
                allowed[[self._whole.places[d] for d in servers if d in self._whole.places]] = False
                ranking = _ranked(self._whole, request, model, steps, allowed)[at]
                nothing = np.zeros(len(ranking.rows), dtype=bool)
                found.append(FoundStep(ranking.features, ranking.cosines, nothing, served=False, gone=True))
        return found

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


def _ranked(
    pool: RowPool, request: WrittenRequest, model: TaskModel, steps: Sequence[DraftStep],
    allowed: npt.NDArray[np.bool_] | None = None,
) -> list[StepRanking]:  # fmt: skip
    """Return the rankings of steps over a pool, in the order in which rows were found."""
    matcher = Matcher(pool, model, request.text, allowed)
    return StepRanker(matcher, np.zeros(len(RANKING_FEATURES))).rank(request.text, steps)


def _found(
    pool: RowPool, request: WrittenRequest, model: TaskModel, steps: Sequence[DraftStep],
    wanted: Sequence[frozenset[str]],
) -> list[FoundStep]:  # fmt: skip
    """Return the found steps over a pool."""
    found = []
    for ranking, servers in zip(_ranked(pool, request, model, steps), wanted, strict=True):
        served, right = any(server in pool.places for server in servers), pool.right(ranking, servers)
        gone = bool(servers) and not served
        found.append(FoundStep(ranking.features, ranking.cosines, right, served, gone))
    return found


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


def _chances(
    answers: Sequence[HeldAnswers], ranking: Numbers
) -> tuple[Numbers, npt.NDArray[np.bool_], list[FoundStep]]:
    """Return what `confidence` is fitted on, where rows are ranked by some weights.

    These are features of each found step's first row, whether it is right, and the step.
    """
    steps = [step for answer in answers for step in answer.found]
    features, right = [], []
    for step in steps:
        scores = step.features @ ranking
        order = np.argsort(-scores, kind="stable")
        ranked = StepRanking(tuple(order.tolist()), scores[order], step.features[order], step.cosines[order])
        features.append(confidence_features(ranked))
        right.append(bool(step.right[order[0]]))
    return np.stack(features), np.array(right), steps


def held_out(
    requests: Sequence[WrittenRequest], now: OpenVersion, recipe: Recipe, folds: int
) -> list[list[HeldAnswers]]:
    """Return by fold what models answer about requests that they have not seen."""
    searcher, found = now.searcher(), []
    of_request = folds_of([request.group for request in requests], folds, seed=1)
    given, vectors = lessons(requests, searcher.places()), searcher.router.vectors
    answerer = Answerer(searcher, now.encoder)
    for fold in range(folds):
        known = [lesson for lesson, own in zip(given, of_request, strict=True) if own != fold]
        model = TaskModel(train_network(known, vectors, recipe).arrays())
        asked = [request for request, own in zip(requests, of_request, strict=True) if own == fold]
        asked = [request for request in asked if request.servers is not None]
        drawn = np.random.default_rng(fold).permutation(len(asked))[:_ASKED]
        found.append([answerer.ask(asked[k], model) for k in drawn])
    return found


def fit(answers: Sequence[HeldAnswers]) -> dict[str, Numbers]:
    """Return the weights that answers teach, of `FEATURES`; of `gap` the least confidence of no gap."""
    feedback = fit_choice([a.counts for a in answers if a.counts is not None], _PENALTY)
    ranking = fit_choice([choice for a in answers for choice in a.rows], _PENALTY)
    features, right, _ = _chances(answers, ranking)
    sure = fit_chance(features, right, _PENALTY)
    least = 1 / (1 + np.exp(-np.quantile(features[right] @ sure, [_LOST])))
    return {"feedback": feedback, "ranking": ranking, "confidence": sure, "gap": least}


def told(weights: Mapping[str, Numbers]) -> dict[str, dict[str, float]]:
    """Return weights by name, as `fitted` reads them."""
    return {
        model: {name: round(float(w), 4) for name, w in zip(names, weights[model], strict=True)}
        for model, names in FEATURES.items()
    }


def report(found: Sequence[Sequence[HeldAnswers]]) -> dict[str, float | None]:
    """Return how well weights do on the folds that they were not fitted on."""
    rows, counts = list[tuple[bool, bool]](), list[tuple[bool, bool]]()
    values, right, steps = list[float](), list[bool](), list[FoundStep]()
    for fold, own in enumerate(found):
        weights = fit([answer for at, answers in enumerate(found) if at != fold for answer in answers])
        rows += [_hits(choice, weights["ranking"]) for answer in own for choice in answer.rows]
        for choice in (answer.counts for answer in own):
            if choice is not None:
                likeliest, chosen = choice.features[:, 0], choice.features @ weights["feedback"]
                counts.append((bool(choice.right[likeliest.argmax()]), bool(choice.right[chosen.argmax()])))
        features, first_right, own_steps = _chances(own, weights["ranking"])
        values += (features @ weights["confidence"]).tolist()
        right += first_right.tolist()
        steps += own_steps
    first, ten = np.mean(rows, axis=0)
    before, after = np.mean(counts, axis=0)

    def scores(chosen: Iterable[bool]) -> list[float]:
        return [value for value, wanted in zip(values, chosen, strict=True) if wanted]

    return {
        "hit@1": float(first), "hit@10": float(ten), "da without hints": float(before), "da": float(after),
        "auroc right": auroc(
            scores(ok and not step.gone for ok, step in zip(right, steps, strict=True)),
            scores(not ok and not step.gone for ok, step in zip(right, steps, strict=True)),
        ),
        "auroc served": auroc(
            scores(step.served and not step.gone for step in steps), scores(step.gone for step in steps)
        ),
    }  # fmt: skip


def _hits(choice: Choice, weights: Numbers) -> tuple[bool, bool]:
    order = np.argsort(-(choice.features @ weights), kind="stable")
    return bool(choice.right[order[0]]), bool(choice.right[order[:10]].any())


def labelled_pairs(requests: Sequence[WrittenRequest]) -> tuple[list[list[str]], list[int]]:
    """Return the features of each pair of steps, as the request tells them, and what the pair is."""
    names: list[list[str]] = []
    labels: list[int] = []
    for request in requests:
        spans = [request.steps[k] for k in request.told()]
        texts = step_texts(request.text, [DraftStep(words_of(request.text, own), own) for own in spans])
        names += [pair_features(texts, i, j) for i in range(len(texts)) for j in range(i + 1, len(texts))]
        labels += pairs_of(request)
    return names, labels


def train_pairs(names: Sequence[Sequence[str]], labels: Sequence[int]) -> PairModel:
    """Return the weights under which the labels are likeliest, given the penalty; each label is there."""
    counted = Counter(name for own in names for name in set(own))
    column = {name: k for k, name in enumerate(sorted(n for n, c in counted.items() if c >= _LEAST))}
    rows = [
        (row, column[name]) for row, own in enumerate(names) for name in dict.fromkeys(own) if name in column
    ]
    given = csr_matrix((np.ones(len(rows)), tuple(zip(*rows, strict=True))), (len(names), len(column)))
    model = LogisticRegression(C=1 / _PAIR_PENALTY, fit_intercept=False, max_iter=10_000, tol=1e-6)
    weights = model.fit(given, labels).coef_.T
    assert weights.shape[1] == CLASSES  # noqa: S101 (a model of two classes has one row)
    return PairModel({name: (*weights[k].tolist(),) for name, k in column.items()})


def main() -> None:
    """Train and fit on all requests, write the packaged files, tell how well."""
    try:
        root, recipe, requests = Root(sys.argv[1]), Recipe(), read_written()
    except WrongInput as error:
        sys.exit(str(error))
    name = require_served(root).model["name"]
    index = ServedIndex(root, encoder=name)
    with index.version() as now:
        searcher, found = now.searcher(), held_out(requests, now, recipe, FOLDS)
    given, vectors = lessons(requests, searcher.places()), searcher.router.vectors
    np.savez_compressed(FILE, allow_pickle=False, **train_average(given, vectors, recipe, _ORDERS))
    FITTED.write_text(json.dumps(told(fit([a for own in found for a in own])), indent=1) + "\n", "utf-8")
    pairs = train_pairs(*labelled_pairs(requests))
    weights = {name: [round(w, 3) for w in row] for name, row in sorted(pairs.weights.items())}
    PAIRS.write_text(json.dumps(weights, indent=0) + "\n", "utf-8")
    write_graph(Path(models.__file__).parent / GRAPH)
    sys.stdout.write(json.dumps({"requests": len(requests), **report(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
