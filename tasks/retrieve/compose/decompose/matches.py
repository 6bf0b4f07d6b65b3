"""Matches: how well served rows fit texts of a task; each text is scored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.retrieve.routing.router import Router

MOST = 40  # rows that are kept of a text's ranking; hints and candidates are among them
COSINE = 0.3  # weight beside a lexical weight of 1, as in the router
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Matches:
    """The best rows for a text, best first, with their scores, `(rows,)`; and parts of every row's score.

    Scores are in standard deviations. `lexical` and `cosine` have an entry for every row of the index.
    """

    rows: npt.NDArray[np.int64]
    scores: Scores
    lexical: Scores
    cosine: Scores

    @property
    def best(self) -> float:
        """The score of the best row; 0 of none."""
        return float(self.scores[0]) if len(self.scores) else 0.0


@dataclass(frozen=True, slots=True)
class ToldRow:
    """A row of the index as a language model is told of it."""

    doc_id: str
    name: str
    description: str
    category: str | None = None


Tell = Callable[[Sequence[int]], list[ToldRow]]


class Matcher:
    """Scores the rows of one index for the texts of one task.

    Args:
        router: Scores the rows.
        allowed: Marks the rows that may be found, shape `(rows,)`; None: all.
        tell: Returns what rows are; None: nobody is told.
    """

    def __init__(
        self, router: Router, allowed: npt.NDArray[np.bool_] | None = None, tell: Tell | None = None
    ) -> None:
        self.router, self._allowed, self._tell = router, allowed, tell
        self._known: dict[str, Matches] = {}

    @property
    def rows(self) -> int:
        """The number of rows of the index."""
        return self.router.rows

    def find(self, text: str) -> Matches:
        """Return the matches of a text."""
        return self.find_all([text])[0]

    def find_all(self, texts: Sequence[str]) -> list[Matches]:
        """Return the matches of texts, those that are new encoded together; rows of equal score by place."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for text, (lexical, cosine) in zip(new, self.router.signals(new), strict=True):
            total = lexical + np.float32(COSINE) * cosine
            best = self.best_of(total, MOST)
            self._known[text] = Matches(best, total[best], lexical, cosine)
        return [self._known[text] for text in texts]

    def best_of(self, scores: Scores, most: int) -> npt.NDArray[np.int64]:
        """Return the `most` best rows that may be found, best first; of equal score by place."""
        rows = np.arange(len(scores)) if self._allowed is None else np.flatnonzero(self._allowed)
        return np.asarray(rows[np.argsort(-scores[rows], kind="stable")[:most]])

    def told(self, rows: Sequence[int]) -> list[ToldRow]:
        """Return what rows are, in their order."""
        return self._tell(rows) if self._tell and rows else []

    def hints(self, texts: Sequence[str], most: int) -> tuple[int, ...]:
        """Return the `most` best rows for any of some texts, best first (algorithm 1, line 4)."""
        best: dict[int, float] = {}
        for found in self.find_all(texts):
            for row, score in zip(found.rows[:most].tolist(), found.scores[:most].tolist(), strict=True):
                best[row] = max(score, best.get(row, score))
        return tuple(sorted(best, key=lambda row: (-best[row], row))[:most])
