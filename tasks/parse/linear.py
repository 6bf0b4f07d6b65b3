"""Fits the linear half of the local classifier; nothing but training imports this, since it needs SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from tasks.parse.trees import Floats


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
