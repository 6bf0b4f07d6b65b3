"""Confidence: how likely a step's first candidate serves it, by its scores (a logistic regression)."""

from __future__ import annotations

import math

import numpy as np

from tasks.retrieve.compose.decompose.fitted import fitted
from tasks.retrieve.compose.ranking import FEATURES as OF_RANKING
from tasks.retrieve.compose.ranking import Scores, StepRanking

_TAKEN = ("words", "named", "named_in_task")
FEATURES = ("constant", "share", "lead", *_TAKEN, "cosine")


def confidence(ranking: StepRanking, at: int = 0) -> float:
    """Return how likely a row of a ranking serves its step, in [0, 1]; 0 without rows."""
    if not ranking.rows:
        return 0.0
    weights = np.array([fitted()["confidence"][name] for name in FEATURES])
    return 1 / (1 + math.exp(-float(confidence_features(ranking, at) @ weights)))


def confidence_features(ranking: StepRanking, at: int = 0) -> Scores:
    """Return `FEATURES` of one row of a ranking; but for shares and leads, no other row changes them much."""
    own = dict(zip(OF_RANKING, ranking.features[at].tolist(), strict=True))
    others = np.delete(ranking.scores, at)
    lead = float(ranking.scores[at] - others.max()) if len(others) else 0.0
    taken, cosine = [own[name] for name in _TAKEN], float(ranking.cosines[at])
    return np.array([1.0, ranking.shares()[at], lead, *taken, cosine])
