"""Matches: how well served rows fit the steps of one task; each step is scored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.retrieve.compose.decompose.steps import DraftStep
from tasks.retrieve.routing.router import Router

MOST = 40  # rows that are kept of a step's ranking; hints and candidates are among them
NEAR = 1.0  # weight of what a step seeks beside its words
Scores = npt.NDArray[np.float32]
Seek = Callable[[Sequence[DraftStep]], Vectors]


@dataclass(frozen=True, slots=True)
class Matches:
    """The best rows for a step, best first, with their scores, `(rows,)`; and parts of every row's score.

    Scores are in standard deviations. `words` and `near` have an entry for every row of the index. `near` is
    by `sought`, a unit vector of shape `(dimension,)`.
    """

    rows: npt.NDArray[np.int64]
    scores: Scores
    words: Scores
    near: Scores
    sought: Vectors


@dataclass(frozen=True, slots=True)
class ToldRow:
    """A row of the index as a language model is told of it."""

    doc_id: str
    name: str
    description: str
    category: str | None = None


Tell = Callable[[Sequence[int]], list[ToldRow]]


class Matcher:
    """Scores the rows of one index for the steps of one task.

    Args:
        router: Scores the rows.
        seek: Returns what steps seek among vectors of name and description, shape `(steps, dimension)`; None:
            the vectors of their texts.
        allowed: Marks the rows that may be found, shape `(rows,)`; None: all.
        tell: Returns what rows are; None: nobody is told.
        most: Rows that are kept of a step's ranking.
    """

    def __init__(
        self,
        router: Router,
        seek: Seek | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        tell: Tell | None = None,
        most: int = MOST,
    ) -> None:
        self.router, self.most, self._allowed, self._tell = router, most, allowed, tell
        self._seek = seek or (lambda steps: router.encode([step.text for step in steps]))
        self._known: dict[DraftStep, Matches] = {}

    @property
    def rows(self) -> int:
        """The number of rows of the index."""
        return self.router.rows

    def find(self, steps: Sequence[DraftStep]) -> list[Matches]:
        """Return the matches of steps; rows of equal score by place."""
        new = [step for step in dict.fromkeys(steps) if step not in self._known]
        if new:
            vectors = self._seek(new)
            for step, near, vector in zip(new, self.router.nearness(vectors), vectors, strict=True):
                words = self.router.words(step.text)
                total = words + np.float32(NEAR) * near
                best = self.best_of(total, self.most)
                self._known[step] = Matches(best, total[best], words, near, vector)
        return [self._known[step] for step in steps]

    def best_of(self, scores: Scores, most: int) -> npt.NDArray[np.int64]:
        """Return the `most` best rows that may be found, best first; of equal score by place."""
        rows = np.arange(len(scores)) if self._allowed is None else np.flatnonzero(self._allowed)
        if len(rows) > most:
            # What ties with the last one stays in, so that the places decide.
            least = -np.partition(-scores[rows], most - 1)[most - 1]
            rows = rows[scores[rows] >= least]
        return np.asarray(rows[np.argsort(-scores[rows], kind="stable")[:most]])

    def told(self, rows: Sequence[int]) -> list[ToldRow]:
        """Return what rows are, in their order."""
        return self._tell(rows) if self._tell and rows else []

    def hints(self, steps: Sequence[DraftStep], most: int) -> tuple[int, ...]:
        """Return the `most` best rows for any of some steps, best first (algorithm 1, line 4)."""
        best: dict[int, float] = {}
        for found in self.find(steps):
            for row, score in zip(found.rows[:most].tolist(), found.scores[:most].tolist(), strict=True):
                best[row] = max(score, best.get(row, score))
        return tuple(sorted(best, key=lambda row: (-best[row], row))[:most])
