"""Fits boosted trees over cues: second-order gradient boosting of the weighted softmax loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from tasks.parse.classify.local import Columns, Floats, Forest, Present


@dataclass(frozen=True, slots=True)
class Boosting:
    """How trees are grown."""

    rounds: int = 150  # one tree a type each
    depth: int = 5  # of each tree
    rate: float = 0.08  # the share of each tree's vote that is taken
    columns: float = 0.2  # the share of columns that a node may ask about
    penalty: float = 3.0  # added to each leaf's curvature (L2)
    least: float = 1.0  # the least curvature a child may have


def fit_forest(
    present: Present, target: Floats, weight: Floats, rng: np.random.Generator, how: Boosting | None = None
) -> Forest:
    """Return trees for rows of cues present, shape `(n, columns)`.

    Args:
        present: The cues.
        target: Each row's distribution over types, shape `(n, types)`.
        weight: Each row's, mean about 1.
        rng: Draws each node's columns.
        how: None takes the defaults.
    """
    how = how or Boosting()
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
