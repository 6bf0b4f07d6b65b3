"""Trains the weights of dependencies: a multinomial logistic regression over what two steps say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from tasks.retrieve.compose.decompose.steps import DraftStep, words_of
from tasks.retrieve.compose.dependencies import CLASSES, PairModel, step_texts
from tasks.retrieve.compose.pair_features import pair_features
from tasks.retrieve.train.step_lessons import pairs_of
from tasks.retrieve.train.written import WrittenRequest

_PENALTY, _LEAST = 10.0, 3


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
    rows = [(row, column[name]) for row, own in enumerate(names) for name in set(own) if name in column]
    shape = (len(names), len(column))
    given = csr_matrix((np.ones(len(rows)), tuple(zip(*rows, strict=True))), shape=shape)
    truth = np.eye(CLASSES)[list(labels)]

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights = flat.reshape(shape[1], CLASSES)
        scores = given @ weights
        total = np.logaddexp.reduce(scores, axis=1)
        belief = np.exp(scores - total[:, None])
        value = float(total.sum() - (scores * truth).sum()) + _PENALTY / 2 * float((weights**2).sum())
        return value, np.asarray(given.T @ (belief - truth) + _PENALTY * weights).ravel()

    found = minimize(loss, np.zeros(shape[1] * CLASSES), jac=True, method="L-BFGS-B").x.reshape(
        shape[1], CLASSES
    )
    return PairModel({name: (found[k, 0], found[k, 1], found[k, 2]) for name, k in column.items()})
