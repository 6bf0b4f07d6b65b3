"""Trains the packaged weights of dependencies: `python -m tasks.retrieve.train.dependencies`.

A multinomial logistic regression over pairs of steps, on the requests that the decomposer learns from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from tasks.retrieve.compose.decompose.draft import DraftStep
from tasks.retrieve.compose.dependencies import (
    BACKWARD,
    CLASSES,
    FILE,
    NEITHER,
    ONWARD,
    PairModel,
    step_texts,
)
from tasks.retrieve.compose.pair_features import pair_features
from tasks.retrieve.compose.plan import closure
from tasks.retrieve.train.clauses import WrittenRequest, read_requests

_PENALTY, _LEAST = 10.0, 3


def labelled_pairs(requests: Sequence[WrittenRequest]) -> tuple[list[list[str]], list[int]]:
    """Return the features of each pair of steps, as the request tells them, and what the pair is."""
    names, labels = [], []
    for request in requests:
        places = sorted(range(len(request.steps)), key=lambda k: request.steps[k][0])
        told = {place: k for k, place in enumerate(places)}
        needed = closure({(told[a], told[b]) for a, b in request.edges})
        drafts = [
            DraftStep(" … ".join(request.text[a:b] for a, b in request.steps[k]), request.steps[k])
            for k in places
        ]
        texts = step_texts(request.text, drafts)
        for i in range(len(texts)):
            for j in range(i + 1, len(texts)):
                names.append(pair_features(texts, i, j))
                labels.append(ONWARD if (i, j) in needed else BACKWARD if (j, i) in needed else NEITHER)
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


def main() -> None:
    """Train on all requests and write the packaged weights."""
    model = train_pairs(*labelled_pairs(read_requests()))
    held = {name: [round(w, 3) for w in row] for name, row in sorted(model.weights.items())}
    FILE.write_text(json.dumps({"requests": len(read_requests()), "weights": held}, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
