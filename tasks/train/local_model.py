"""Trains the local classifier: `python -m tasks.train.local_model TRAIN.jsonl...`.

A linear model and second-order boosting of the weighted softmax loss, both fitted to probabilities, of which
scikit-learn's models know nothing; its trees were half a point less accurate on held-out documents.
Chance enters by the folds and the columns that each node of a tree may ask about; both have fixed seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from storage.errors import WrongInput
from storage.schemas import NODE_TYPES
from tasks import parse
from tasks.evaluate.measures.nodes import accuracy, by_type, confusion, read_gold
from tasks.evaluate.measures.statistics import calibration, calibration_error
from tasks.parse.classify.features import find_cues, find_words
from tasks.parse.classify.local import (
    WEIGHTS,
    Columns,
    Features,
    Floats,
    Forest,
    LocalModel,
    Present,
    save_model,
    softmax,
)
from tasks.parse.classify.protocol import FragmentInContext
from tasks.train.splits import folds_of

# A label that its annotator doubted counts for less, and more of it goes to all types alike.
DOUBTED = 0.6
SMOOTHED, SMOOTHED_DOUBTED = 0.03, 0.2
# How far rare types are weighed up: 0 not at all, 1 until all types weigh the same.
BALANCE = 0.3
RAREST = 4  # of cues and of words: the rows they are found in
# Forests differ by the columns they may ask about; their votes are averaged.
FORESTS = 2
PENALTY = 2.0  # of the squared weights of the linear part, halved
ROUNDS = 80  # of L-BFGS, at most
FOLDS = 5
_TEMPERATURES = np.linspace(0.5, 2.0, 61)


class Labelled(NamedTuple):
    """A fragment with the type someone gave it; `doubted` where another might well differ."""

    fragment: FragmentInContext
    doc_id: str
    node_type: str
    doubted: bool


def read_labelled(path: Path) -> list[Labelled]:
    """Return labelled fragments, as `read_gold` reads them, each with its document.

    Raises:
        WrongInput: As `read_gold`, or it is not known which document a fragment is of.
    """
    gold = read_gold(path)
    documents = [doc_id for doc_id in gold.documents if doc_id is not None]
    if len(documents) < len(gold.fragments):
        raise WrongInput(f"{path}: a fragment names no document: give each its `doc_id`")
    return list(map(Labelled, gold.fragments, documents, gold.node_types, gold.doubted))


def agreement(rows: Sequence[Labelled], given: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Return how well probabilities, shape `(len(rows), 6)`, agree with labels, each figure in [0, 1].

    `accuracy`, `undoubted` (that of rows that nobody doubted), `f1` of each type, 0 of one that nobody named,
    their mean `macro_f1`, and `calibration_error` over ten bins of confidence.
    """
    labels = [row.node_type for row in rows]
    answers = [NODE_TYPES[k] for k in given.argmax(axis=1).tolist()]
    sure = [
        (label, answer) for row, label, answer in zip(rows, labels, answers, strict=True) if not row.doubted
    ]
    table = by_type(confusion(labels, answers))
    f1 = {kind: table[kind]["f1"] if kind in table else 0.0 for kind in NODE_TYPES}
    right = [a == b for a, b in zip(labels, answers, strict=True)]
    return {
        "accuracy": accuracy(labels, answers), "macro_f1": fmean(f1.values()),
        "undoubted": accuracy([a for a, _ in sure], [b for _, b in sure]),
        "calibration_error": calibration_error(calibration(given.max(axis=1).tolist(), right)), "f1": f1,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Boosting:
    """How trees are grown."""

    rounds: int = 150  # one tree a type each
    depth: int = 5  # of each tree
    rate: float = 0.08  # the share of each tree's vote that is taken
    columns: float = 0.2  # the share of columns that a node may ask about
    penalty: float = 3.0  # added to each leaf's curvature (L2)
    least: float = 1.0  # the least curvature a child may have


BOOSTING = Boosting()


def fit_model(rows: Sequence[Labelled], how: Boosting) -> LocalModel:
    """Return a model of some thousands of rows, with temperature 1.

    Cues and words found in fewer than 4 of them are left out.
    """
    fragments = [row.fragment for row in rows]
    labels = np.array([NODE_TYPES.index(row.node_type) for row in rows])
    weight = label_weights(rows, labels)
    away = np.array([[SMOOTHED_DOUBTED if row.doubted else SMOOTHED] for row in rows], dtype=np.float32)
    target = np.eye(len(NODE_TYPES), dtype=np.float32)[labels] * (1 - away) + away / len(NODE_TYPES)
    features = _features(fragments)
    found = [features.of(fragment) for fragment in fragments]
    columns, values = [f[0] for f in found], [f[1] for f in found]
    linear = fit_linear(columns, values, features.columns, target, weight)
    present = np.zeros((len(fragments), len(features.cues)), dtype=np.bool_)
    for row, (known, _, cues) in enumerate(found):
        present[row, known[:cues]] = True
    draws = [np.random.default_rng(k) for k in range(FORESTS)]
    grown = [fit_forest(present, target, weight, draw, how) for draw in draws]
    return LocalModel(features, linear, _together(grown), 1.0)


def fit_linear(
    found: list[npt.NDArray[np.int64]], values: list[Floats], columns: int, target: Floats, weight: Floats
) -> Floats:
    """Return weights, shape `(columns, types)`, that minimise the weighted log loss plus an L2 penalty.

    `found` and `values` are the columns found in each row and their values, `target` is each row's
    distribution over types, shape `(n, types)`.
    """
    ends = np.cumsum([0, *(len(row) for row in found)])
    design = csr_matrix((np.concatenate(values), np.concatenate(found), ends), shape=(len(found), columns))
    across = design.T.tocsr()

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights = flat.reshape(columns, -1)
        scores = design @ weights
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        slope = across @ ((np.exp(logs) - target) * weight[:, None]) + PENALTY * weights
        return -float(weight @ (logs * target).sum(axis=1)) + PENALTY / 2 * float(flat @ flat), slope.ravel()

    flat = np.zeros(columns * target.shape[1])
    best: Any = minimize(loss, flat, jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS})
    return np.asarray(best.x, dtype=np.float32).reshape(columns, -1)


def fit_forest(
    present: Present, target: Floats, weight: Floats, rng: np.random.Generator, how: Boosting = BOOSTING
) -> Forest:
    """Return trees for rows of cues present, shape `(n, columns)`.

    Args:
        present: The cues.
        target: Each row's distribution over types, shape `(n, types)`.
        weight: Each row's, mean about 1.
        rng: Draws each node's columns.
        how: How they are grown.
    """
    design = present.astype(np.float32)
    start = np.log((target * weight[:, None]).sum(axis=0) / weight.sum() + 1e-6).astype(np.float32)
    scores = np.tile(start, (len(design), 1))
    columns, leaves = [], []
    for _ in range(how.rounds):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = powers / powers.sum(axis=1, keepdims=True)
        slope, curve = (p - target) * weight[:, None], p * (1 - p) * weight[:, None]
        grown, votes, landed = _grow(design, slope, curve, rng, how)
        scores += np.take_along_axis(votes.T, landed, axis=0)
        columns.append(grown)
        leaves.append(votes)
    return Forest(np.concatenate(columns).astype(np.int32), np.concatenate(leaves).astype(np.float32), start)


def _grow(
    design: Floats, slope: Floats, curve: Floats, rng: np.random.Generator, how: Boosting
) -> tuple[Columns, Floats, npt.NDArray[np.int64]]:
    """Grow one tree a type, level by level; return columns, leaves, and the leaf of each row and type."""
    n, types = slope.shape
    columns = np.zeros((types, 2**how.depth - 1), dtype=np.int32)
    at = np.zeros((n, types), dtype=np.int64)
    for level in range(how.depth):
        width = 2**level
        every = [_sums(at, values, width) for values in (slope, curve)]
        inside = [(held @ design).reshape(types, width, -1) for held in every]
        whole = [held.sum(axis=1).reshape(types, width, 1) for held in every]
        gain = _gain(inside, whole, how)
        gain[rng.random(gain.shape, dtype=np.float32) >= how.columns] = 0.0
        columns[:, width - 1 : 2 * width - 1] = gain.argmax(axis=2)
        asked = np.take_along_axis(columns[:, width - 1 : 2 * width - 1].T, at, axis=0)
        at = 2 * at + np.take_along_axis(design, asked, axis=1).astype(np.int64)
    held = [_sums(at, values, 2**how.depth).sum(axis=1).reshape(types, -1) for values in (slope, curve)]
    return columns, (-how.rate * held[0] / (held[1] + how.penalty)).astype(np.float32), at


def _sums(at: npt.NDArray[np.int64], values: Floats, width: int) -> Floats:
    """Spread each row's values to the node it stands at; shape `(types * width, n)`."""
    n, types = values.shape
    spread = np.zeros((types, width, n), dtype=np.float32)
    spread[np.arange(types)[None, :], at, np.arange(n)[:, None]] = values
    return spread.reshape(types * width, n)


def _gain(inside: list[Floats], whole: list[Floats], how: Boosting) -> Floats:
    """Return what asking each column would gain at each node, shape `(types, width, columns)`."""
    (slope, curve), (all_slope, all_curve) = inside, whole
    outside, outside_curve = all_slope - slope, all_curve - curve
    gain = slope**2 / (curve + how.penalty) + outside**2 / (outside_curve + how.penalty)
    gained: Floats = np.where(np.minimum(curve, outside_curve) < how.least, 0.0, gain)
    return gained


def _features(fragments: Sequence[FragmentInContext]) -> Features:
    cues = Counter(name for fragment in fragments for name in find_cues(fragment))
    words = Counter(name for fragment in fragments for name in find_words(fragment))
    kept = sorted(name for name, count in cues.items() if count >= RAREST)
    known = sorted(name for name, count in words.items() if count >= RAREST)
    return Features(
        {name: k for k, name in enumerate(kept)}, {name: len(kept) + k for k, name in enumerate(known)}
    )


def label_weights(rows: Sequence[Labelled], labels: npt.NDArray[np.int64]) -> Floats:
    """Return what each row counts, 1 on average: doubted ones less, rows of rare types more."""
    share = np.bincount(labels, minlength=len(NODE_TYPES)) / len(rows)
    doubt = np.array([DOUBTED if row.doubted else 1.0 for row in rows])
    weight = doubt * share[labels] ** -BALANCE
    return np.asarray(weight / weight.mean(), dtype=np.float32)


def _together(forests: Sequence[Forest]) -> Forest:
    """Return one forest whose scores are the mean of theirs."""
    columns = np.concatenate([forest.columns for forest in forests])
    leaves = np.concatenate([forest.leaves for forest in forests]) / len(forests)
    return Forest(columns, leaves.astype(np.float32), forests[0].start)


def held_out(rows: Sequence[Labelled], how: Boosting, *, folds: int = FOLDS) -> npt.NDArray[np.float64]:
    """Return each row's probabilities by a model that saw nothing of its owner's, shape `(len(rows), 6)`."""
    owners = [row.doc_id.partition("--")[0] for row in rows]
    fold, given = folds_of(owners, folds), np.zeros((len(rows), len(NODE_TYPES)))
    for k in range(folds):
        model = fit_model([rows[place] for place in np.flatnonzero(fold != k).tolist()], how)
        places = np.flatnonzero(fold == k).tolist()
        if places:
            given[places] = model.probabilities([rows[place].fragment for place in places])
    return given


def fit_temperature(given: npt.NDArray[np.float64], rows: Sequence[Labelled]) -> float:
    """Return the temperature, 0.5 to 2, under which held-out probabilities have the least log loss."""
    labels = [NODE_TYPES.index(row.node_type) for row in rows]

    def loss(temperature: float) -> float:
        scaled = softmax(np.log(given + 1e-9) / temperature)
        return -float(np.log(scaled[np.arange(len(rows)), labels] + 1e-12).mean())

    return float(min(_TEMPERATURES.tolist(), key=loss))


def main(arguments: Sequence[str] | None = None) -> None:
    """Cross-validate over owners, report on standard output, fit on all rows and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, nargs="+", help="labelled fragments, JSON lines")
    parser.add_argument("--out", type=Path, default=Path(parse.__file__).parent / WEIGHTS)
    parser.add_argument("--rounds", type=int, default=BOOSTING.rounds, help="of boosting")
    options = parser.parse_args(arguments)
    rows = [row for path in options.train for row in read_labelled(path)]
    how = Boosting(rounds=options.rounds)
    given = held_out(rows, how)
    temperature = fit_temperature(given, rows)
    measured = agreement(rows, softmax(np.log(given + 1e-9) / temperature))
    found = {"rows": len(rows), "temperature": temperature, **measured}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    model = fit_model(rows, how)
    save_model(options.out, LocalModel(model.features, model.linear, model.forest, temperature))


if __name__ == "__main__":
    main()
