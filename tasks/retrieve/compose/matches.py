"""Matches: how well served rows fit the steps of one task; each step is scored once."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.retrieve.compose.drafts import DraftStep
from tasks.retrieve.compose.task_model import TaskModel
from tasks.retrieve.routing.postings import function_terms, term_counts
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import RowFacts

MOST = 40  # rows that are kept of a step's ranking; hints and candidates are among them
NEAR = 1.0  # weight of what a step seeks beside its words
_COMMON = "mcp server servers mcpserver tool tools api ai agent skill python typescript client official"
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE = re.compile(r"[.!?:]['\")]?\s")
Scores = npt.NDArray[np.float32]


class Rows(Protocol):
    """The rows of one index: what scores them, and what is held of them by their places."""

    @property
    def router(self) -> Router:
        """Scores all rows."""

    def facts(self, places: Sequence[int], /) -> list[RowFacts]:
        """Return what is held in memory of rows."""

    def rows(self, places: Sequence[int], /) -> list[dict[str, Any]]:
        """Return rows."""


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
        index: The rows.
        model: Tells what steps of the task seek among vectors of name and description; None: the vectors of
            their texts tell it.
        task: What is asked for.
        allowed: Marks the rows that may be found, shape `(rows,)`; None: all.
        most: Rows that are kept of a step's ranking.
    """

    def __init__(
        self,
        index: Rows,
        model: TaskModel | None = None,
        task: str = "",
        allowed: npt.NDArray[np.bool_] | None = None,
        most: int = MOST,
    ) -> None:
        self.index, self.router, self.most = index, index.router, most
        self._model, self._task, self._allowed = model, task, allowed
        self._known: dict[DraftStep, Matches] = {}

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

    def hints(self, steps: Sequence[DraftStep], most: int) -> tuple[int, ...]:
        """Return the `most` best rows for any of some steps, best first (algorithm 1, line 4)."""
        best: dict[int, float] = {}
        for found in self.find(steps):
            for row, score in zip(found.rows[:most].tolist(), found.scores[:most].tolist(), strict=True):
                best[row] = max(score, best.get(row, score))
        return tuple(sorted(best, key=lambda row: (-best[row], row))[:most])

    @functools.cached_property
    def services(self) -> frozenset[str]:
        """What is served that the task names, in lower case: its proper nouns that are in rows' names."""
        best = self.best_of(self.router.words(self._task), MOST).tolist()
        known = frozenset[int]().union(*map(name_terms, self.index.facts(best)))
        return frozenset(proper_nouns(self._task, known))


def proper_nouns(text: str, known: frozenset[int]) -> Iterator[str]:
    """Yield runs of words with a capital, other than where a sentence begins, that have known terms."""
    run, end = list[str](), 0
    for found in _WORD.finditer(text):
        between, word = text[end : found.start()], found[0].removesuffix("'s").removesuffix("’s")
        begins = not end or _SENTENCE.search(between) is not None
        capital = any(map(str.isupper, word[1:] if begins else word))
        follows, named = not between.strip(), capital and not known.isdisjoint(term_counts(word))
        if run and not (named and follows):
            yield " ".join(run)
            run = []
        if named:
            run.append(word.lower())
        end = found.end()
    if run:
        yield " ".join(run)


def name_terms(fact: RowFacts) -> frozenset[int]:
    """Return the terms that tell a row's name and the end of its id from others."""
    return frozenset(term_counts(f"{fact.name} {fact.doc_id.rpartition('/')[2]}")) - _common_terms()


@functools.cache
def _common_terms() -> frozenset[int]:
    return frozenset(term_counts(_COMMON)) | function_terms()
