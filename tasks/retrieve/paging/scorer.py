"""The scorer of units, which estimates how likely each is needed (its card: `data/paging_scorer.md`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.retrieve.paging.features import NAMES
from tasks.retrieve.paging.outline import SHAPE
from tasks.retrieve.paging.terms import Floats

FILE = Path(__file__).parents[1] / "data" / "paging_scorer.json"
SCORER_VERSION = 3
# What a score is made of, by the beginning of the features' names; the rest is what the unit itself is like.
_GROUPS = (
    ("facets", ("facet", "champion", "log_facets", "spread")),
    ("headings", ("title_words", "section")),
    ("words", ("words", "node_words")),
    ("meaning", ("cosine", "state", "feedback")),
)
_FACETS = NAMES.index("log_facets")
_SUREST = 15.0  # beyond it, single precision no longer tells a chance from 1
GROUPS = (*(group for group, _ in _GROUPS), "shape")


@dataclass(frozen=True, slots=True)
class Scorer:
    """A logistic regression over `NAMES`, whose weights depend on the number of a request's facets.

    Features are standardised by `mean` and `deviation`. `weight` is for a request with the mean number of
    facets; `lean` is its change for one standard deviation of the logarithm of the facets. All four arrays
    have the shape `(len(NAMES),)`.
    """

    mean: Floats
    deviation: Floats
    weight: Floats
    lean: Floats
    bias: float

    def logits(self, features: Floats) -> Floats:
        """Return each unit's score, shape `(units,)`, from its features, shape `(len(NAMES), units)`."""
        slope = self._slope(features)
        scores: Floats = slope @ features
        return scores + np.float32(self.bias - float(slope @ self.mean))

    def by_group(self, features: Floats) -> Floats:
        """Return each group's part of the score, compared with an average unit: `(units, groups)`."""
        slopes = self._slope(features) * _members()
        return np.ascontiguousarray((slopes @ features - (slopes @ self.mean)[:, None]).T)

    def _slope(self, features: Floats) -> Floats:
        facets = leaning(features, self.mean, self.deviation)
        found: Floats = (self.weight + np.float32(facets) * self.lean) / self.deviation
        return found


def leaning(features: Floats, mean: Floats, deviation: Floats) -> float:
    """Return the standardised logarithm of a request's number of facets."""
    return float((features[_FACETS, 0] - mean[_FACETS]) / deviation[_FACETS])


def chances(logits: Floats) -> Floats:
    """Return logits as chances in (0, 1)."""
    found: Floats = 1 / (1 + np.exp(-np.clip(logits, -_SUREST, _SUREST)))
    return found


@functools.lru_cache(maxsize=1)
def packaged_scorer() -> Scorer:
    """Return the scorer that the package carries."""
    return scorer_of(json.loads(FILE.read_text("utf-8")))


def scorer_of(stored: Mapping[str, Any]) -> Scorer:
    """Return a scorer from its stored form, `{version, bias, features: {name: numbers}}`.

    The numbers are mean, deviation, weight and lean.

    Raises:
        ValueError: The version or the features are others than these.
    """
    if stored["version"] != SCORER_VERSION or tuple(stored["features"]) != NAMES:
        msg = f"the paging scorer is of version {stored['version']} or of other features: fit it anew"
        raise ValueError(msg)
    mean, deviation, weight, lean = np.array(list(stored["features"].values()), dtype=np.float32).T.copy()
    return Scorer(mean, deviation, weight, lean, float(stored["bias"]))


@functools.lru_cache(maxsize=1)
def _members() -> Floats:
    """Return which feature belongs to which group, as ones and zeros of shape `(groups, len(NAMES))`."""
    group_of = [_group(name) for name in NAMES]
    return np.array([[found == group for found in group_of] for group in GROUPS], dtype=np.float32)


def _group(name: str) -> str:
    if name in SHAPE:
        return "shape"
    return next((group for group, starts in _GROUPS if name.startswith(starts)), "shape")
