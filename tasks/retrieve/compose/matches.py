"""Matches: how well served rows fit the steps of one task; each step is scored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.retrieve.compose.drafts import DraftStep
from tasks.retrieve.compose.task_model import TaskModel
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import Searcher

MOST = 40  # rows that are kept of a step's ranking; hints and candidates are among them
NEAR = 1.0  # weight of what a step seeks beside its words
Scores = npt.NDArray[np.float32]


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


class Matcher:
    """Scores the rows of one index for the steps of one task.

    Args:
        router: Scores the rows.
        model: Tells what steps of the task seek among vectors of name and description; None: the vectors of
            their texts tell it.
        task: What is asked for.
        allowed: Marks the rows that may be found, shape `(rows,)`; None: all.
        most: Rows that are kept of a step's ranking.
        searcher: Reads rows; None: there are none to be read.
    """

    def __init__(
        self,
        router: Router,
        model: TaskModel | None = None,
        task: str = "",
        allowed: npt.NDArray[np.bool_] | None = None,
        most: int = MOST,
        searcher: Searcher | None = None,
    ) -> None:
        self.router, self.most = router, most
        self._model, self._task, self._allowed, self._searcher = model, task, allowed, searcher
        self._known: dict[DraftStep, Matches] = {}

    @property
    def rows(self) -> int:
        """The number of rows of the index."""
        return self.router.rows

    def find(self, steps: Sequence[DraftStep]) -> list[Matches]:
        """Return the matches of steps; rows of equal score by place."""
        new = [step for step in dict.fromkeys(steps) if step not in self._known]
        if new:
            vectors = self._sought(new)
            for step, near, vector in zip(new, self.router.nearness(vectors), vectors, strict=True):
                words = self.router.words(step.text)
                total = words + np.float32(NEAR) * near
                best = self.best_of(total, self.most)
                self._known[step] = Matches(best, total[best], words, near, vector)
        return [self._known[step] for step in steps]

    def _sought(self, steps: Sequence[DraftStep]) -> Vectors:
        if self._model is None:
            return self.router.encode([step.text for step in steps])
        return self._model.sought(self._task, steps)

    def best_of(self, scores: Scores, most: int) -> npt.NDArray[np.int64]:
        """Return the `most` best rows that may be found, best first; of equal score by place."""
        rows = np.arange(len(scores)) if self._allowed is None else np.flatnonzero(self._allowed)
        if len(rows) > most:
            # What ties with the last one stays in, so that the places decide.
            least = -np.partition(-scores[rows], most - 1)[most - 1]
            rows = rows[scores[rows] >= least]
        return np.asarray(rows[np.argsort(-scores[rows], kind="stable")[:most]])

    def read(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows of the index, in their order."""
        return self._searcher.rows(rows) if self._searcher and rows else []

    def hints(self, steps: Sequence[DraftStep], most: int) -> tuple[int, ...]:
        """Return the `most` best rows for any of some steps, best first (algorithm 1, line 4)."""
        best: dict[int, float] = {}
        for found in self.find(steps):
            for row, score in zip(found.rows[:most].tolist(), found.scores[:most].tolist(), strict=True):
                best[row] = max(score, best.get(row, score))
        return tuple(sorted(best, key=lambda row: (-best[row], row))[:most])
