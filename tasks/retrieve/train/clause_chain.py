"""Trains the chain that labels clauses, by its likelihood (Lafferty et al., ICML 2001, equation 1).

States are four: left out before any step and after one are told apart, because no clause continues a step
before one has begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from tasks.retrieve.compose.decompose.chain import BEGIN, LABELS, OUT
from tasks.retrieve.compose.decompose.clauses import JOINS
from tasks.retrieve.compose.decompose.local import ClauseModel

_Numbers = npt.NDArray[np.float64]
_STATES = 4
_LABEL_OF = [0, 1, 2, 2]  # of each state
_NEVER = -1e9


@dataclass(frozen=True, slots=True)
class LabelledClauses:
    """A request with the labels of its clauses: features by clause, joins, vectors `(clauses, 2 d)`."""

    names: Sequence[Sequence[str]]
    joins: Sequence[int]
    vectors: npt.NDArray[np.float32]
    labels: Sequence[int]


@dataclass(frozen=True, slots=True)
class Penalties:
    """The squared weights' costs, the least number of clauses that a feature holds of, and the axes kept."""

    names: float = 4.0
    vectors: float = 10.0
    pairs: float = 0.3
    least: int = 3
    axes: int = 24


class _Batch:
    """Requests as arrays padded to the longest: joins, labels and mask of shape `(requests, clauses)`."""

    def __init__(self, given: Sequence[LabelledClauses], model: ClauseModel) -> None:
        n, longest = len(given), max(len(g.labels) for g in given)
        self.shape = (n, longest)
        self.mask = np.zeros(self.shape, dtype=bool)
        self.labels = np.zeros(self.shape, dtype=np.int64)
        self.joins = np.zeros(self.shape, dtype=np.int64)
        self.dense = np.zeros((n * longest, model.axes.shape[1]))
        rows: list[int] = []
        columns: list[int] = []
        for i, g in enumerate(given):
            length = len(g.labels)
            self.mask[i, :length], self.labels[i, :length], self.joins[i, :length] = True, g.labels, g.joins
            self.dense[i * longest : i * longest + length] = (g.vectors - model.centre) @ model.axes
            for t, own in enumerate(g.names):
                known = [model.of_names[name] for name in set(own) if name in model.of_names]
                rows += [i * longest + t] * len(known)
                columns += known
        size = (n * longest, len(model.of_names))
        self.sparse = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=size)


def train_chain(given: Sequence[LabelledClauses], penalties: Penalties | None = None) -> ClauseModel:
    """Return the weights under which the labels of requests are most likely, given the penalties."""
    cost = penalties or Penalties()
    model = _empty(given, cost)
    batch = _Batch(given, model)
    sizes = [model.weights.size, model.of_vectors.size, model.pairs.size]

    def unpacked(flat: _Numbers) -> ClauseModel:
        names, vectors, pairs = np.split(flat, np.cumsum(sizes)[:-1])
        return ClauseModel(
            model.of_names, names.reshape(-1, LABELS), model.centre, model.axes,
            vectors.reshape(-1, LABELS), pairs.reshape(len(JOINS), LABELS, LABELS),
        )  # fmt: skip

    def loss(flat: _Numbers) -> tuple[float, _Numbers]:
        at = unpacked(flat)
        value, of_scores, of_pairs = _likelihood(batch, at)
        weighed = (
            (cost.names, at.weights, batch.sparse.T @ of_scores),
            (cost.vectors, at.of_vectors, batch.dense.T @ of_scores),
            (cost.pairs, at.pairs, of_pairs),
        )
        value += sum(0.5 * c * float((w * w).sum()) for c, w, _ in weighed)
        return value, np.concatenate([(slope + c * w).ravel() for c, w, slope in weighed])

    found = minimize(loss, np.zeros(sum(sizes)), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return unpacked(found.x)


def _empty(given: Sequence[LabelledClauses], cost: Penalties) -> ClauseModel:
    """Return a model without weights: the names that occur often enough, and the widest axes of vectors."""
    counted = Counter(name for g in given for own in g.names for name in set(own))
    names = {name: row for row, name in enumerate(sorted(n for n, c in counted.items() if c >= cost.least))}
    vectors = np.vstack([g.vectors for g in given]).astype(np.float64)
    centre = vectors.mean(axis=0)
    half, width = cost.axes, vectors.shape[1] // 2
    axes = np.zeros((2 * width, 2 * half))
    for side in range(2):  # of the clause, and of its first word
        own = vectors[:, side * width : (side + 1) * width] - centre[side * width : (side + 1) * width]
        _, spread, right = np.linalg.svd(own, full_matrices=False)
        scaled = right[:half].T / (spread[:half] / np.sqrt(len(vectors)))
        axes[side * width : (side + 1) * width, side * half : (side + 1) * half] = scaled
    zeros = np.zeros((len(names), LABELS)), np.zeros((2 * half, LABELS))
    return ClauseModel(names, zeros[0], centre, axes, zeros[1], np.zeros((len(JOINS), LABELS, LABELS)))


def _likelihood(batch: _Batch, model: ClauseModel) -> tuple[float, _Numbers, _Numbers]:
    """Return the negative log-likelihood, and its slopes by clause and label, and by join and pair."""
    (n, longest), mask = batch.shape, batch.mask
    scores = (batch.sparse @ model.weights + batch.dense @ model.of_vectors).reshape(n, longest, LABELS)
    own = scores[:, :, _LABEL_OF]
    moves = np.full((n, longest, _STATES, _STATES), _NEVER)
    pairs = model.pairs[batch.joins]
    moves[:, :, :LABELS, :LABELS] = pairs
    moves[:, :, 3, BEGIN], moves[:, :, 3, 3] = pairs[:, :, OUT, BEGIN], pairs[:, :, OUT, OUT]
    ahead, behind = np.full((n, longest, _STATES), _NEVER), np.zeros((n, longest, _STATES))
    ahead[:, 0, BEGIN], ahead[:, 0, 3] = own[:, 0, BEGIN], own[:, 0, 3]
    for t in range(1, longest):
        reached = np.logaddexp.reduce(ahead[:, t - 1, :, None] + moves[:, t], axis=1) + own[:, t]
        ahead[:, t] = np.where(mask[:, t, None], reached, ahead[:, t - 1])
    for t in range(longest - 2, -1, -1):
        onward = moves[:, t + 1] + (own[:, t + 1] + behind[:, t + 1])[:, None, :]
        behind[:, t] = np.where(mask[:, t + 1, None], np.logaddexp.reduce(onward, axis=2), 0.0)
    total = np.logaddexp.reduce(ahead[:, -1], axis=1)
    belief = np.exp(ahead + behind - total[:, None, None]) * mask[..., None]
    of_labels = belief[:, :, :LABELS].copy()
    of_labels[:, :, OUT] += belief[:, :, 3]
    truth = np.eye(LABELS)[batch.labels] * mask[..., None]
    of_pairs, right = np.zeros_like(model.pairs), 0.0
    for t in range(1, longest):
        joint = ahead[:, t - 1, :, None] + moves[:, t] + (own[:, t] + behind[:, t])[:, None, :]
        chance = np.exp(joint - total[:, None, None]) * mask[:, t, None, None]
        by_label = chance[:, :LABELS, :LABELS].copy()
        by_label[:, OUT, BEGIN] += chance[:, 3, BEGIN]
        by_label[:, OUT, OUT] += chance[:, 3, 3]
        places = np.flatnonzero(mask[:, t])
        before, now = batch.labels[places, t - 1], batch.labels[places, t]
        right += float(pairs[places, t, before, now].sum())
        by_label[places, before, now] -= 1.0
        np.add.at(of_pairs, batch.joins[:, t], by_label)
    value = float(total.sum()) - float((scores * truth).sum()) - right
    return value, (of_labels - truth).reshape(-1, LABELS), of_pairs
