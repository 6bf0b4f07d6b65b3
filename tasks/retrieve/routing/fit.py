"""Fit: the probability that a ranked skill serves the request, so that a search can say that nothing does.

A logistic model of how the skill was found (Platt 1999); `data/fit.md` is its card. The score itself says
little: it is relative to the pool, in which something is always best.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).parents[1] / "data" / "fit.json"
FEATURES = (
    "some_share", "some_cosine", "cosine", "margin", "above", "lexical_margin", "dense_margin", "rows",
)  # fmt: skip
# Up to these a share or a cosine tells whether a skill has to do with the request at all.
_SHARE, _COSINE = 0.2, 0.3
TOP = 10  # leading skills that a skill is compared with
DECIDING = 3  # results of which one must fit, else nothing does, however many are asked for
_SURE = 50.0  # log odds beyond which a probability is told no finer
Evidence = npt.NDArray[np.float64]
_UNREAD = np.zeros(0)


class Leading(NamedTuple):
    """What was found of the leading skills, best first; each field has shape `(skills,)`.

    `score` is the sum of the parts that decide which is first and `whole` the cosine to the whole request,
    both in standard deviations of the pool; `lexical` is the share, 0 to 1, of the request's words by weight
    that BM25F finds; `cosine` is that to the nearest facet of the request, or to the whole.
    """

    score: Evidence
    lexical: Evidence
    whole: Evidence
    cosine: Evidence


class FitModel(NamedTuple):
    """A weight for each of `FEATURES` and a bias; below `least` a skill is taken not to serve.

    `reading` are the weights of `read_features`, if skills are read beside the request.
    """

    weights: Evidence
    bias: float
    least: float
    reading: Evidence | None = None

    def chances(self, evidence: Evidence, read: Evidence = _UNREAD) -> Evidence:
        """Return the probability, 0 to 1, for each row of `evidence_of`.

        `read`, shape `(skills read,)`, are the scores by reading of the first ones. No other is likelier than
        the likeliest of them: it is not known what reading would say.
        """
        told = evidence @ self.weights + self.bias
        if self.reading is not None and (n := len(read)):
            told[:n] = read_features(told[:n], read) @ self.reading
            told[n:] = np.minimum(told[n:], told[:n].max())
        return np.asarray(1 / (1 + np.exp(-np.clip(told, -_SURE, _SURE))))

    def told(self) -> dict[str, Any]:
        """Return the model as `packaged_fit` reads it."""
        named = {name: round(float(w), 4) for name, w in zip(FEATURES, self.weights, strict=True)}
        return {"weights": named, "bias": round(self.bias, 4), "least": round(self.least, 4)}


def read_features(found: Evidence, read: Evidence) -> Evidence:
    """Return what tells whether skills serve that were read, shape `(skills, 5)`.

    It is 1, the log odds by what was found, the score by reading below 0 and above, and how far that is below
    the best other's: to be the best among few others says nothing.
    """
    below, above, behind = np.minimum(read, 0), np.maximum(read, 0), np.minimum(_margins(read, len(read)), 0)
    return np.stack([np.ones(len(read)), found, below, above, behind], axis=1)


def evidence_of(leading: Leading, rows: int, compared: int) -> Evidence:
    """Return the values of `FEATURES` for each leading skill, shape `(skills, features)`.

    A margin is the distance to the best other skill among the first `compared`, at least 1; of a single skill
    it is 0. `rows`, at least 1, is the number of skills that might have been found.
    """
    above = leading.score - leading.score[: min(TOP, compared)].mean()
    margins = (_margins(v, compared) for v in (leading.score, leading.lexical, leading.whole))
    by_score, by_words, by_vector = margins
    columns = [
        np.minimum(leading.lexical, _SHARE), np.minimum(leading.cosine, _COSINE), leading.cosine,
        by_score, above, by_words, by_vector, np.full(len(above), np.log(rows)),
    ]  # fmt: skip
    return np.stack(columns, axis=1)


@functools.cache
def packaged_fit(rerank: str = "none") -> FitModel:
    """Return the model that comes with the package; `rerank` says how skills are read beside the request."""
    held = json.loads(FILE.read_text("utf-8"))
    model = FitModel(np.array([held["weights"][name] for name in FEATURES]), held["bias"], held["least"])
    own = held.get("reading", {}).get(rerank)
    return model._replace(reading=np.array(own["weights"]), least=own["least"]) if own else model


def _margins(values: Evidence, compared: int) -> Evidence:
    known = np.sort(values[:compared])
    first, second = known[-1], known[max(len(known) - 2, 0)]
    best = np.arange(len(values)) == int(values[:compared].argmax())
    return np.asarray(values - np.where(best, second, first))
