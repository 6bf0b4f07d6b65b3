"""Fitting of the small models of compose: choices among drafts or rows, chances, pairs of steps by words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from tasks.retrieve.compose.dependencies import CLASSES, PairModel, pair_features, step_texts
from tasks.retrieve.compose.drafts import DraftStep, words_of
from tasks.retrieve.train.step_lessons import pairs_of
from tasks.retrieve.train.written import WrittenRequest

Numbers = npt.NDArray[np.float64]
_SPREAD = 1e-9  # below it a feature is the same in all rows, and is not scaled
_PAIR_PENALTY, _LEAST = 10.0, 3  # of weights of pairs; a feature holds of so many at least


@dataclass(frozen=True, slots=True)
class Choice:
    """Options with features, shape `(options, features)`, and which of them are right, `(options,)`."""

    features: Numbers
    right: npt.NDArray[np.bool_]


def fit_choice(given: Sequence[Choice], penalty: float) -> Numbers:
    """Return the weights under which the right options are likeliest (conditional logit), in features' units.

    Choices without a right option teach nothing. The penalty is on squared weights of standardised features.
    """
    told = [one for one in given if one.right.any()]
    scale = np.concatenate([one.features for one in told]).std(axis=0) + 1e-6
    rows = np.concatenate([one.features / scale for one in told])
    right = np.concatenate([one.right for one in told])
    owner = np.repeat(np.arange(len(told)), [len(one.right) for one in told])

    def shares(scores: Numbers) -> tuple[Numbers, Numbers]:
        most = np.full(len(told), -np.inf)
        np.maximum.at(most, owner, scores)
        likely = np.exp(scores - most[owner])
        total = np.bincount(owner, likely)
        return likely / total[owner], np.log(total) + most

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        scores = rows @ weights
        every, total = shares(scores)
        good, best = shares(np.where(right, scores, -1e9))
        slope = rows.T @ (every - good) / len(told) + 2 * penalty * weights
        return float((total - best).mean() + penalty * weights @ weights), slope

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(found.x / scale)


def fit_chance(
    features: Numbers, right: npt.NDArray[np.bool_], penalty: float, counts: Numbers | None = None,
    rising: Sequence[int] = (),
) -> Numbers:  # fmt: skip
    """Return the weights of a logistic regression; the first feature is the constant, without penalty.

    `counts` says how much each row counts, all the same if not given; the weights of the features `rising`
    are 0 at least.
    """
    share = np.full(len(right), 1 / len(right)) if counts is None else counts / counts.sum()
    spread = features.std(axis=0)
    scale = np.where(spread > _SPREAD, spread, 1.0)
    rows, kept = features / scale, np.r_[0.0, np.ones(features.shape[1] - 1)]

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        scores = rows @ weights
        value = np.logaddexp(0, scores) - right * scores
        slope = rows.T @ (share * (expit(scores) - right))
        held = kept * weights
        return float(share @ value + penalty * held @ held), slope + 2 * penalty * held

    least = [(0 if place in rising else None, None) for place in range(rows.shape[1])]
    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", bounds=least)
    return np.asarray(found.x / scale)


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
    """Return the weights under which the labels are likeliest, given the penalty."""
    counted = Counter(name for own in names for name in set(own))
    column = {name: k for k, name in enumerate(sorted(n for n, c in counted.items() if c >= _LEAST))}
    known = ((row, name) for row, own in enumerate(names) for name in dict.fromkeys(own) if name in column)
    rows = [(row, column[name]) for row, name in known]
    shape = (len(names), len(column))
    given = csr_matrix((np.ones(len(rows)), tuple(zip(*rows, strict=True))), shape=shape)
    truth = np.eye(CLASSES)[list(labels)]

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights = flat.reshape(shape[1], CLASSES)
        scores = given @ weights
        total = np.logaddexp.reduce(scores, axis=1)
        belief = np.exp(scores - total[:, None])
        value = float(total.sum() - (scores * truth).sum()) + _PAIR_PENALTY / 2 * float((weights**2).sum())
        return value, np.asarray(given.T @ (belief - truth) + _PAIR_PENALTY * weights).ravel()

    found = minimize(loss, np.zeros(shape[1] * CLASSES), jac=True, method="L-BFGS-B").x.reshape(
        shape[1], CLASSES
    )
    return PairModel({name: (found[k, 0], found[k, 1], found[k, 2]) for name, k in column.items()})
