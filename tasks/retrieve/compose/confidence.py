"""Confidence: how likely a step's first candidate serves it, by its scores (a logistic regression)."""

from __future__ import annotations

import math

import numpy as np

from tasks.retrieve.compose.fitted import fitted
from tasks.retrieve.compose.ranking import FEATURES as OF_RANKING
from tasks.retrieve.compose.ranking import Scores, StepRanking

_TAKEN = ("words", "sought", "cosine", "named", "named_in_task")
FEATURES = ("constant", "share", "lead", *_TAKEN, "rows")


def confidence(ranking: StepRanking, rows: int) -> float:
    """Return how likely the first row of a ranking serves its step, in [0, 1]; 0 without rows."""
    if not ranking.rows:
        return 0.0
    weights = np.array([fitted()["confidence"][name] for name in FEATURES])
    return 1 / (1 + math.exp(-float(confidence_features(ranking, rows) @ weights)))


def confidence_features(ranking: StepRanking, rows: int) -> Scores:
    """Return `FEATURES` of a ranking that is not empty, in an index of so many rows."""
    first = dict(zip(OF_RANKING, ranking.features[0].tolist(), strict=True))
    lead = float(ranking.scores[0] - ranking.scores[1]) if len(ranking.scores) > 1 else 0.0
    # Scores in standard deviations are no larger than the root of the number of rows.
    return np.array([1.0, ranking.shares()[0], lead, *(first[name] for name in _TAKEN), math.log(rows)])
