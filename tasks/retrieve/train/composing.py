"""Trains all that composing needs: `python -m tasks.retrieve.train.composing ROOT`, about an hour.

ROOT serves the index whose rows are named by the requests in `REQUESTS`. What is fitted on the task model's
answers is fitted on those of models that have not seen the request; standard output tells how well they do.
Seeds are fixed; rounding differs between processors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from storage.root import Root
from storage.served import require_served
from tasks.models.adapted_encoder import GRAPH
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.compose.dependencies import FILE as PAIRS
from tasks.retrieve.compose.ranking import CONFIDENCE_FEATURES as OF_CONFIDENCE
from tasks.retrieve.compose.ranking import FITTED
from tasks.retrieve.compose.ranking import RANKING_FEATURES as OF_RANKING
from tasks.retrieve.compose.rounds import FEEDBACK_FEATURES as OF_FEEDBACK
from tasks.retrieve.compose.task_model import FILE, TaskModel
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.train.answers import Answerer, ChancePart, HeldAnswers, chances
from tasks.retrieve.train.fitting import Choice, Numbers, fit_chance, fit_choice, labelled_pairs, train_pairs
from tasks.retrieve.train.step_lessons import lessons
from tasks.retrieve.train.task_model import Recipe, train_average, train_network, write_graph
from tasks.retrieve.train.written import WrittenRequest, read_written

FOLDS = 3
_ORDERS = 2  # in which the network learns; held-out answers are those of one order
_ASKED = 300  # requests of each fold; what is fitted has a dozen weights
_PENALTY = 0.001
_LOST = 0.02  # share of the steps whose first row is right that may be taken for gaps


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


def folds_of(requests: Sequence[WrittenRequest], folds: int) -> list[int]:
    """Return the fold of each request; requests that say the same are in one."""
    groups = sorted({request.group for request in requests})
    drawn = np.random.default_rng(1).permutation(len(groups)) % folds
    of_group = dict(zip(groups, drawn.tolist(), strict=True))
    return [of_group[request.group] for request in requests]


def held_out(requests: Sequence[WrittenRequest], now: OpenVersion, recipe: Recipe, folds: int) -> HeldOut:
    """Return what models answer about requests that they have not seen."""
    searcher, found, of_request = now.searcher(), HeldOut(), folds_of(requests, folds)
    given, vectors = lessons(requests, searcher.places()), searcher.router.vectors
    answerer = Answerer(searcher, _skills(now), now.encoder)
    for fold in range(folds):
        known = [lesson for lesson, own in zip(given, of_request, strict=True) if own != fold]
        model = TaskModel(train_network(known, vectors, recipe).arrays())
        asked = [request for request, own in zip(requests, of_request, strict=True) if own == fold]
        asked = [request for request in asked if request.servers is not None]
        asked = [asked[k] for k in np.random.default_rng(fold).permutation(len(asked))[:_ASKED]]
        found.answers += [answerer.ask(request, model) for request in asked]
        found.folds += [fold] * len(asked)
    return found


def _skills(now: OpenVersion) -> list[Skill]:
    """Return what the rows of a version say, in the order of its routing index."""
    columns = ["doc_id", "name", "description", "text", "body_start"]
    held = {row["doc_id"]: row for row in now.skills.search().select(columns).to_arrow().to_pylist()}
    ids = now.searcher().ids(range(now.searcher().router.rows))
    return [
        Skill(d, held[d]["name"], held[d]["description"], held[d]["text"][held[d]["body_start"] :])
        for d in ids
    ]


def fit(answers: Sequence[HeldAnswers]) -> Weights:
    """Return the weights that the answers teach."""
    feedback = fit_choice([a.counts for a in answers if a.counts is not None], _PENALTY)
    ranking = fit_choice([choice for a in answers for choice in a.rows], _PENALTY)
    parts = chances(answers, ranking)
    features, right = np.stack([p.features for p in parts]), np.array([p.right for p in parts])
    sure = fit_chance(features, right, _PENALTY)
    least = float(1 / (1 + np.exp(-np.quantile(features[right] @ sure, _LOST))))
    return Weights(feedback, ranking, sure, least)


def report(found: HeldOut) -> dict[str, float]:
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
        "auroc right": auroc(values[right & ~gone], values[~right & ~gone]),
        "auroc served": auroc(values[served & ~gone], values[gone]),
    }  # fmt: skip


def auroc(high: Numbers, low: Numbers) -> float:
    """Return the chance that one of `high` is above one of `low`."""
    ranks = np.argsort(np.argsort(np.concatenate([high, low]))) + 1
    return float((ranks[: len(high)].sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def _hits(choice: Choice, weights: Numbers) -> tuple[bool, bool]:
    order = np.argsort(-(choice.features @ weights), kind="stable")
    return bool(choice.right[order[0]]), bool(choice.right[order[:10]].any())


def main() -> None:
    """Train and fit on all requests, write the packaged files, tell how well."""
    root, recipe, requests = Root(sys.argv[1]), Recipe(), read_written()
    name = require_served(root).model["name"]
    index = ServedIndex(root, encoder=name, classifier=LocalClassifier)
    with index.version() as now:
        searcher = now.searcher()
    found = held_out(requests, now, recipe, FOLDS)
    given, vectors = lessons(requests, searcher.places()), searcher.router.vectors
    np.savez_compressed(FILE, allow_pickle=False, **train_average(given, vectors, recipe, _ORDERS))
    FITTED.write_text(json.dumps(fit(found.answers).told(), indent=1) + "\n", "utf-8")
    pairs = train_pairs(*labelled_pairs(requests))
    weights = {name: [round(w, 3) for w in row] for name, row in sorted(pairs.weights.items())}
    PAIRS.write_text(json.dumps(weights, indent=0) + "\n", "utf-8")
    write_graph(Path(__file__).parents[2] / "models" / GRAPH)
    sys.stdout.write(json.dumps({"requests": len(requests), **report(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
