"""A linear-chain model that labels words: begins a step, continues one, or is left out.

After Lafferty, McCallum and Pereira, "Conditional random fields", ICML 2001 (equation 1), decoded for the
number of steps first: each count has a probability, and best labels of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
BEGIN, INSIDE, OUT = 0, 1, 2
LABELS = 3
_NEVER = -1e9


@dataclass(frozen=True, slots=True)
class CountedLabels:
    """The labels of a task's words by their number of steps.

    `shares`, shape `(most + 1,)`, are the counts' probabilities; `_best`, `(most + 1, 3)`, and `_back`,
    `(words, most + 1, 3)`, are what Viterbi's algorithm found for each count and last label.
    """

    shares: Scores
    _best: Scores
    _back: npt.NDArray[np.int64]

    def likeliest(self) -> int:
        """Return the number of steps that is most probable; of equals the smallest."""
        return int(np.argmax(self.shares))

    def nearest(self, wanted: int) -> int:
        """Return the count nearest to the one wanted for which there are labels."""
        possible = np.flatnonzero(self._best.max(axis=1) > _NEVER / 2)
        return int(possible[np.argmin(np.abs(possible - wanted))])

    def labels(self, count: int) -> tuple[int, ...]:
        """Return the best labels with so many steps; none of no words."""
        if not len(self._back):
            return ()
        label = int(np.argmax(self._best[count]))
        found = [label]
        for back in self._back[:0:-1]:
            before = int(back[count, label])
            count -= int(label == BEGIN)
            label = before
            found.append(label)
        return tuple(found[::-1])


def counted(scores: Scores, moves: Scores, most: int) -> CountedLabels:
    """Return the labels of words for each number of steps.

    Args:
        scores: Of each word's labels, shape `(words, 3)`.
        moves: Of a label (row) before another (column), shape `(3, 3)`.
        most: The largest number of steps.
    """
    if not len(scores):
        return CountedLabels(
            np.eye(1, most + 1)[0], np.zeros((most + 1, LABELS)), np.zeros((0, 1, 1), np.int64)
        )
    sums = np.full((most + 1, LABELS), _NEVER)
    sums[0, OUT] = scores[0, OUT]
    if most:
        sums[1, BEGIN] = scores[0, BEGIN]
    best = sums.copy()
    back = np.zeros((len(scores), most + 1, LABELS), dtype=np.int64)
    for i in range(1, len(scores)):
        chosen = (best[:, :, None] + moves).argmax(axis=1)
        back[i] = chosen
        back[i, 1:, BEGIN] = chosen[:-1, BEGIN]
        sums = _onward(sums, moves, scores[i], lambda into: np.logaddexp.reduce(into, axis=1))
        best = _onward(best, moves, scores[i], lambda into: into.max(axis=1))
    totals = np.logaddexp.reduce(sums, axis=1)
    return CountedLabels(np.exp(totals - np.logaddexp.reduce(totals)), best, back)


def _onward(before: Scores, moves: Scores, own: Scores, combined: Callable[[Scores], Scores]) -> Scores:
    """Return the scores of counts and labels at the next word."""
    into = combined(before[:, :, None] + moves)
    after = np.full_like(before, _NEVER)
    after[1:, BEGIN] = into[:-1, BEGIN]
    after[1:, INSIDE] = into[1:, INSIDE]  # nothing continues a step before one has begun
    after[:, OUT] = into[:, OUT]
    return np.maximum(after + own, _NEVER)
