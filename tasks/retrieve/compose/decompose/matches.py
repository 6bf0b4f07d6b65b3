"""Matches: the served rows that fit a text best, found once for each text of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.retrieve.routing.router import Router

# Rows that are kept of a text's ranking; hints, and candidates before they are reranked, are among them.
MOST = 40


@dataclass(frozen=True, slots=True)
class Matches:
    """The best rows for a text, best first, each array of shape `(rows,)`.

    `scores` are the router's, in standard deviations of its lexical part; `lexical` is that part alone.
    """

    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    lexical: npt.NDArray[np.float32]

    @property
    def best(self) -> float:
        """The score of the best row; 0 of none."""
        return float(self.scores[0]) if len(self.scores) else 0.0

    def among(self, chosen: frozenset[int]) -> Matches:
        """Return the matches that are among some rows."""
        kept = np.array([row in chosen for row in self.rows.tolist()], dtype=bool)
        return Matches(self.rows[kept], self.scores[kept], self.lexical[kept])


@dataclass(frozen=True, slots=True)
class ToldRow:
    """A row of the index as a language model is told of it."""

    doc_id: str
    name: str
    description: str
    category: str | None = None


Tell = Callable[[Sequence[int]], list[ToldRow]]


class Matcher:
    """Ranks the rows of one index for the texts of one task.

    Args:
        router: Scores the rows.
        allowed: Marks the rows that may be found, shape `(rows,)`; None: all.
        tell: Returns what rows are; None: nobody is told.
    """

    def __init__(
        self, router: Router, allowed: npt.NDArray[np.bool_] | None = None, tell: Tell | None = None
    ) -> None:
        self._router, self._allowed, self._tell = router, allowed, tell
        self._known: dict[str, Matches] = {}

    def find(self, text: str) -> Matches:
        """Return the matches of a text, at most `MOST`; rows of equal score by their place."""
        if text not in self._known:
            parts = self._router.parts(text)
            total = np.stack(list(parts.values())).sum(axis=0)
            rows = np.arange(len(total)) if self._allowed is None else np.flatnonzero(self._allowed)
            best = rows[np.argsort(-total[rows], kind="stable")[:MOST]]
            self._known[text] = Matches(best, total[best], parts["lexical"][best])
        return self._known[text]

    def told(self, rows: Sequence[int]) -> list[ToldRow]:
        """Return what rows are, in their order."""
        return self._tell(rows) if self._tell and rows else []

    def hints(self, texts: tuple[str, ...], most: int) -> tuple[int, ...]:
        """Return the `most` best rows for any of some texts, best first (algorithm 1, line 4)."""
        best: dict[int, float] = {}
        for text in texts:
            found = self.find(text)
            for row, score in zip(found.rows[:most].tolist(), found.scores[:most].tolist(), strict=True):
                best[row] = max(score, best.get(row, score))
        return tuple(sorted(best, key=lambda row: (-best[row], row))[:most])
