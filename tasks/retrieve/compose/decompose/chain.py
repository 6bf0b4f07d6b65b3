"""A linear-chain model that labels clauses: begins a step, continues one, or is left out.

After Lafferty, McCallum and Pereira, "Conditional random fields", ICML 2001 (equation 1), decoded for the
number of steps first: the count that is most probable, then the best labels of that count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
BEGIN, INSIDE, OUT = 0, 1, 2
LABELS = 3
_NEVER = -1e9


@dataclass(frozen=True, slots=True)
class Labelling:
    """The labels of a request's clauses, the probability of their number of steps, and that of each count."""

    labels: tuple[int, ...]
    counts: tuple[float, ...]


def decode(unary: Scores, pairs: Scores, most: int, exactly: int | None = None) -> Labelling:
    """Return the best labels of the most probable number of steps.

    Args:
        unary: Scores of each clause's labels, shape `(clauses, 3)`.
        pairs: Scores of a label after another, by clause, shape `(clauses, 3, 3)`; the first is not read.
        most: The largest number of steps.
        exactly: The number of steps, if it is known; the nearest that the clauses allow is taken.
    """
    n = len(unary)
    sums = np.full((n, most + 1, LABELS), _NEVER)
    best = np.full((n, most + 1, LABELS), _NEVER)
    back = np.zeros((n, most + 1, LABELS), dtype=np.int64)
    for label in range(LABELS):
        count = int(label == BEGIN)
        if label != INSIDE and count <= most:
            sums[0, count, label] = best[0, count, label] = unary[0, label]
    for i in range(1, n):
        for label in range(LABELS):
            step = int(label == BEGIN)
            into = sums[i - 1] + pairs[i, :, label]
            ahead = best[i - 1] + pairs[i, :, label]
            for count in range(step, most + 1):
                if label == INSIDE and count == 0:
                    continue
                sums[i, count, label] = np.logaddexp.reduce(into[count - step]) + unary[i, label]
                back[i, count, label] = int(np.argmax(ahead[count - step]))
                best[i, count, label] = ahead[count - step].max() + unary[i, label]
    totals = np.logaddexp.reduce(sums[-1], axis=1)
    shares = np.exp(totals - np.logaddexp.reduce(totals))
    count = int(np.argmax(shares)) if exactly is None else _nearest(best[-1].max(axis=1), exactly)
    label = int(np.argmax(best[-1, count]))
    labels = [label]
    for i in range(n - 1, 0, -1):
        before = int(back[i, count, label])
        count -= int(label == BEGIN)
        label = before
        labels.append(label)
    return Labelling(tuple(labels[::-1]), tuple(shares.tolist()))


def _nearest(best: Scores, wanted: int) -> int:
    """Return the count nearest to the one wanted for which there are labels."""
    possible = np.flatnonzero(best > _NEVER / 2)
    return int(possible[np.argmin(np.abs(possible - wanted))])
