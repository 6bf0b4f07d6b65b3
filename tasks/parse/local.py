"""The classifier that needs no model: cues found by rules, weighed by an additive score a type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np
import numpy.typing as npt

from storage.schemas import NODE_TYPES
from tasks.parse.classify import FragmentInContext, Typed
from tasks.parse.cues import find_cues

Weights = Mapping[str, Sequence[float]]

_BATCH = 4096
# A sum of crude weights is never certain; this is also the highest figure that four decimals tell from 1.
_SUREST = 0.999


class RuleClassifier:
    """Types fragments as in SkillPager, section 3.1, by hand-written cues and nothing else.

    A type's score is the sum of the weights of the cues found; the confidence is the softmax of the scores
    (at least 1/6, at most 0.999). Deterministic, and independent of the order and number of fragments.

    Args:
        weights: A weight for each of `NODE_TYPES` a cue; None takes those that `tasks.parse.fit` left in
            the package. Cues without weights count for nothing.
    """

    name = "rules-1"

    def __init__(self, weights: Weights | None = None) -> None:
        table = packaged_weights() if weights is None else weights
        self._row = {cue: row for row, cue in enumerate(table)}
        self._weights = np.array([*table.values(), [0.0] * len(NODE_TYPES)], dtype=np.float64)

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order; a tie goes to the type that `NODE_TYPES` names first."""
        answers: list[Typed] = []
        for start in range(0, len(fragments), _BATCH):
            answers += self._classify_batch(fragments[start : start + _BATCH])
        return answers

    def scores(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each type, shape `(len(fragments), 6)`, columns as in `NODE_TYPES`."""
        nothing = len(self._row)
        rows: list[int] = []
        starts: list[int] = []
        for fragment in fragments:
            starts.append(len(rows))
            found = [self._row.get(cue, nothing) for cue in find_cues(fragment)]
            rows += found
        if not starts:
            return np.zeros((0, len(NODE_TYPES)))
        return softmax(np.add.reduceat(self._weights[rows], starts, axis=0))

    def _classify_batch(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        probabilities = self.scores(fragments)
        best = probabilities.argmax(axis=1)
        sure = np.minimum(probabilities.max(axis=1), _SUREST)
        return [Typed(NODE_TYPES[k], p) for k, p in zip(best.tolist(), sure.tolist(), strict=True)]


def softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return each row's softmax; shape `(n, types)` to the same."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def packaged_weights() -> dict[str, list[float]]:
    """Return the weights in the package, `{cue: [a weight for each of NODE_TYPES]}`."""
    text = resources.files("tasks.parse").joinpath("data/cue_weights.json").read_text(encoding="utf-8")
    weights: dict[str, list[float]] = json.loads(text)
    return weights
