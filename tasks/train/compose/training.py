"""Training of all that composing needs: `python -m tasks.train.compose.training ROOT`, about an hour.

ROOT serves the index whose rows are named by the requests in `REQUESTS`. What is fitted on the task model's
answers is fitted on those of models that have not seen the request; standard output tells how well they do.
Seeds are fixed; rounding differs between processors.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from storage.errors import WrongInput
from storage.lance.served import require_served
from storage.root import Root
from tasks import models
from tasks.evaluate.measures.statistics import auroc
from tasks.models.adapted_encoder import GRAPH
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.compose.dependencies import CLASSES, PairModel, pair_features, step_texts
from tasks.retrieve.compose.dependencies import FILE as PAIRS
from tasks.retrieve.compose.drafts import DraftStep, words_of
from tasks.retrieve.compose.ranking import CONFIDENCE_FEATURES as OF_CONFIDENCE
from tasks.retrieve.compose.ranking import FITTED
from tasks.retrieve.compose.ranking import RANKING_FEATURES as OF_RANKING
from tasks.retrieve.compose.rounds import FEEDBACK_FEATURES as OF_FEEDBACK
from tasks.retrieve.compose.task_model import FILE, TaskModel
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.served_index import ServedIndex
from tasks.train.compose.answers import Answerer, ChancePart, HeldAnswers, chances
from tasks.train.compose.requests import WrittenRequest, lessons, pairs_of, read_written
from tasks.train.compose.task_model import Recipe, train_average, train_network, write_graph
from tasks.train.logistic import Choice, Numbers, fit_chance, fit_choice
from tasks.train.splits import folds_of

FOLDS = 3
_ORDERS = 2  # in which the network learns; held-out answers are those of one order
_ASKED = 300  # requests of each fold; what is fitted has a dozen weights
_PENALTY = 0.001
_LOST = 0.02  # share of the steps whose first row is right that may be taken for gaps
_PAIR_PENALTY, _LEAST = 10.0, 3  # of weights of pairs; a feature holds of so many at least


@dataclass(frozen=True, slots=True)
class Weights:
    """What is fitted: weights of feedback, ranking and confidence, and the least confidence of no gap."""

    feedback: Numbers
    ranking: Numbers
    confidence: Numbers
    gap: float

    def told(self) -> dict[str, dict[str, float]]:
        """Return the weights by name, as `fitted` reads them."""
        named = (
            ("feedback", OF_FEEDBACK, self.feedback),
            ("ranking", OF_RANKING, self.ranking),
            ("confidence", OF_CONFIDENCE, self.confidence),
        )
        held = {
            model: {name: round(float(w), 4) for name, w in zip(names, weights, strict=True)}
            for model, names, weights in named
        }
        return {**held, "gap": {"least": round(self.gap, 4)}}


@dataclass(slots=True)
class HeldOut:
    """What models answer that have not seen a request, and the fold of each answer."""

    answers: list[HeldAnswers] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)

    def of(self, *, fold: int, inside: bool) -> list[HeldAnswers]:
        """Return the answers of a fold, or of all others."""
        return [a for a, f in zip(self.answers, self.folds, strict=True) if (f == fold) == inside]


def held_out(requests: Sequence[WrittenRequest], now: OpenVersion, recipe: Recipe, folds: int) -> HeldOut:
    """Return what models answer about requests that they have not seen."""
    searcher, found = now.searcher(), HeldOut()
    of_request = folds_of([request.group for request in requests], folds, seed=1)
    given, vectors = lessons(requests, searcher.places()), searcher.router.vectors
    answerer = Answerer(searcher, now.encoder)
    for fold in range(folds):
        known = [lesson for lesson, own in zip(given, of_request, strict=True) if own != fold]
        model = TaskModel(train_network(known, vectors, recipe).arrays())
        asked = [request for request, own in zip(requests, of_request, strict=True) if own == fold]
        asked = [request for request in asked if request.servers is not None]
        asked = [asked[k] for k in np.random.default_rng(fold).permutation(len(asked))[:_ASKED]]
        found.answers += [answerer.ask(request, model) for request in asked]
        found.folds += [fold] * len(asked)
    return found


def fit(answers: Sequence[HeldAnswers]) -> Weights:
    """Return the weights that the answers teach."""
    feedback = fit_choice([a.counts for a in answers if a.counts is not None], _PENALTY)
    ranking = fit_choice([choice for a in answers for choice in a.rows], _PENALTY)
    parts = chances(answers, ranking)
    features, right = np.stack([p.features for p in parts]), np.array([p.right for p in parts])
    sure = fit_chance(features, right, _PENALTY)
    least = float(1 / (1 + np.exp(-np.quantile(features[right] @ sure, _LOST))))
    return Weights(feedback, ranking, sure, least)


def report(found: HeldOut) -> dict[str, float | None]:
    """Return how well weights do on the folds that they were not fitted on."""
    rows: list[tuple[bool, bool]] = []
    counts: list[tuple[bool, bool]] = []
    parts: list[ChancePart] = []
    sure: list[float] = []
    for fold in sorted(set(found.folds)):
        weights, own = fit(found.of(fold=fold, inside=False)), found.of(fold=fold, inside=True)
        for answer in own:
            rows += [_hits(choice, weights.ranking) for choice in answer.rows]
            if answer.counts is not None:
                chosen = int(np.argmax(answer.counts.features @ weights.feedback))
                counts.append(
                    (
                        bool(answer.counts.right[np.argmax(answer.counts.features[:, 0])]),
                        bool(answer.counts.right[chosen]),
                    )
                )
        tested = chances(own, weights.ranking)
        parts += tested
        sure += [float(p.features @ weights.confidence) for p in tested]
    values, right = np.array(sure), np.array([p.right for p in parts])
    served, gone = (np.array([getattr(p, name) for p in parts]) for name in ("served", "gone"))
    first, ten = np.mean(rows, axis=0)
    before, after = np.mean(counts, axis=0)
    return {
        "hit@1": float(first), "hit@10": float(ten), "da without hints": float(before), "da": float(after),
        "auroc right": auroc(values[right & ~gone].tolist(), values[~right & ~gone].tolist()),
        "auroc served": auroc(values[served & ~gone].tolist(), values[gone].tolist()),
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
    index = ServedIndex(root, encoder=name, classifier=LocalClassifier)
    with index.version() as now:
        searcher, found = now.searcher(), held_out(requests, now, recipe, FOLDS)
    given, vectors = lessons(requests, searcher.places()), searcher.router.vectors
    np.savez_compressed(FILE, allow_pickle=False, **train_average(given, vectors, recipe, _ORDERS))
    FITTED.write_text(json.dumps(fit(found.answers).told(), indent=1) + "\n", "utf-8")
    pairs = train_pairs(*labelled_pairs(requests))
    weights = {name: [round(w, 3) for w in row] for name, row in sorted(pairs.weights.items())}
    PAIRS.write_text(json.dumps(weights, indent=0) + "\n", "utf-8")
    write_graph(Path(models.__file__).parent / GRAPH)
    sys.stdout.write(json.dumps({"requests": len(requests), **report(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
