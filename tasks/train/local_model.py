"""Trains the local classifier: `python -m tasks.train.local_model TRAIN.jsonl`.

With `--corpus` it also learns what it and the context model that is shipped say together of fragments that
nobody labelled; so `tasks.train.context_model` comes first.

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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from storage.schemas import NODE_TYPES
from tasks import parse
from tasks.parse.classify.cascade import together
from tasks.parse.classify.context_model import packaged_context_model
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
from tasks.parse.classify.protocol import FragmentInContext, Probabilities
from tasks.train.fragments import Agreement, Labelled, agreement, draw_by_type, draw_unlabelled, read_labelled
from tasks.train.splits import folds_of

# A label that its annotator doubted counts for less.
DOUBTED = 0.6
# How far rare types are weighed up: 0 not at all, 1 until all types weigh the same.
BALANCE = 0.3
RAREST_CUE, RAREST_WORD = 4, 2
# The same where unlabelled fragments teach too, and what each of these counts beside a labelled one.
RAREST_TAUGHT, TAUGHT = 8, 0.5
# Forests differ by the columns they may ask about; their votes are averaged.
FORESTS = 2
FOLDS = 5
_TEMPERATURES = np.linspace(0.5, 2.0, 61)


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


class Answered(NamedTuple):
    """Fragments that nobody labelled, and what a better model says of them: probabilities, shape `(n, 6)`."""

    fragments: Sequence[FragmentInContext]
    targets: npt.NDArray[np.float64]


def fit_model(
    rows: Sequence[Labelled], how: Boosting = BOOSTING, seed: int = 0, answered: Answered | None = None
) -> LocalModel:
    """Return a model of these rows, with temperature 1.

    Args:
        rows: Should have some thousands; cues found in fewer than 4 rows and words in fewer than 2 are
            left out.
        how: How trees are grown.
        seed: Decides which columns each node of a tree may ask about.
        answered: To learn from as well; then cues and words found in fewer than 8 are left out.
    """
    fragments = [row.fragment for row in rows]
    labels = np.array([NODE_TYPES.index(row.node_type) for row in rows])
    target = np.eye(len(NODE_TYPES), dtype=np.float32)[labels]
    weight = label_weights(rows, labels)
    rarest = (RAREST_CUE, RAREST_WORD)
    if answered is not None:
        fragments += answered.fragments
        target = np.concatenate([target, answered.targets.astype(np.float32)])
        weight = np.concatenate([weight, np.full(len(answered.fragments), TAUGHT, np.float32)])
        rarest = (RAREST_TAUGHT, RAREST_TAUGHT)
    features = _features(fragments, *rarest)
    found = [features.of(fragment) for fragment in fragments]
    columns, values = [f[0] for f in found], [f[1] for f in found]
    linear = fit_linear(columns, values, features.columns, target, weight)
    present = np.zeros((len(fragments), len(features.cues)), dtype=np.bool_)
    for row, (known, _, cues) in enumerate(found):
        present[row, known[:cues]] = True
    draws = [np.random.default_rng(seed + k) for k in range(FORESTS)]
    grown = [fit_forest(present, target, weight, draw, how) for draw in draws]
    return LocalModel(features, linear, _together(grown), 1.0)


def fit_linear(
    found: list[npt.NDArray[np.int64]],
    values: list[Floats],
    columns: int,
    target: Floats,
    weight: Floats,
    *,
    penalty: float = 2.0,
    rounds: int = 80,
) -> Floats:
    """Return weights, shape `(columns, types)`, that minimise the weighted log loss plus an L2 penalty.

    Args:
        found: The columns found in each row.
        values: Their values, in the same order.
        columns: How many there are.
        target: Each row's distribution over types, shape `(n, types)`.
        weight: Each row's.
        penalty: Of the squared weights, halved.
        rounds: The most iterations of L-BFGS.
    """
    ends = np.cumsum([0, *(len(row) for row in found)])
    design = csr_matrix((np.concatenate(values), np.concatenate(found), ends), shape=(len(found), columns))
    across = design.T.tocsr()

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights = flat.reshape(columns, -1)
        scores = design @ weights
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        slope = across @ ((np.exp(logs) - target) * weight[:, None]) + penalty * weights
        return -float(weight @ (logs * target).sum(axis=1)) + penalty / 2 * float(flat @ flat), slope.ravel()

    flat = np.zeros(columns * target.shape[1])
    best: Any = minimize(loss, flat, jac=True, method="L-BFGS-B", options={"maxiter": rounds})
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


def _features(fragments: Sequence[FragmentInContext], rarest_cue: int, rarest_word: int) -> Features:
    cues = Counter(name for fragment in fragments for name in find_cues(fragment))
    words = Counter(name for fragment in fragments for name in find_words(fragment))
    kept = sorted(name for name, count in cues.items() if count >= rarest_cue)
    known = sorted(name for name, count in words.items() if count >= rarest_word)
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


def held_out(
    rows: Sequence[Labelled], how: Boosting = BOOSTING, *, folds: int = FOLDS, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Return each row's probabilities by a model that saw nothing of its document, shape `(len(rows), 6)`."""
    fold, given = folds_of([row.doc_id for row in rows], folds, seed), np.zeros((len(rows), len(NODE_TYPES)))
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


def answers_of(first: LocalModel, second: Probabilities, fragments: Sequence[FragmentInContext]) -> Answered:
    """Return what both models together say of fragments, some of each type."""
    given = first.probabilities(fragments)
    drawn = draw_by_type(given).tolist()
    shown = [fragments[k] for k in drawn]
    return Answered(shown, together(given[drawn], second.probabilities(shown), temperature=1.0))


def report(measured: Agreement, rows: int, temperature: float) -> str:
    """Return what labels alone reach, by cross-validation over documents, as JSON.

    `tasks.train.context_model` measures what unlabelled fragments add: its network never saw the fold.
    """
    return json.dumps(
        {"learned from": "labels alone", "rows": rows, "temperature": temperature, **measured._asdict()},
        indent=2,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Cross-validate over documents, report on standard output, fit on all rows and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, help="labelled fragments, JSON lines")
    parser.add_argument("--out", type=Path, default=Path(parse.__file__).parent / WEIGHTS)
    parser.add_argument("--corpus", type=Path, help="Parquet of skills that nobody labelled")
    parser.add_argument("--without", type=Path, help="JSON lines with the doc_id of skills not to learn from")
    parser.add_argument("--rounds", type=int, default=BOOSTING.rounds, help="of boosting")
    options = parser.parse_args(arguments)
    rows, how = read_labelled(options.train), Boosting(rounds=options.rounds)
    given = held_out(rows, how)
    temperature = fit_temperature(given, rows)
    measured = agreement(rows, softmax(np.log(given + 1e-9) / temperature))
    sys.stdout.write(report(measured, len(rows), temperature) + "\n")
    model = fit_model(rows, how)
    if options.corpus:
        fragments = draw_unlabelled(options.corpus, rows, options.without)
        model = fit_model(rows, how, answered=answers_of(model, packaged_context_model(), fragments))
    save_model(options.out, LocalModel(model.features, model.linear, model.forest, temperature))


if __name__ == "__main__":
    main()
