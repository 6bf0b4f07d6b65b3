"""Mines hard negatives for training from SkillRouter's four sources (section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.bm25f import Lexical
from tasks.retrieve.train.false_negatives import FalseNegatives, Layer
from tasks.retrieve.train.queries import TrainingQuery
from tasks.retrieve.train.split import Rows

Source = Literal["semantic", "lexical", "category", "random", "ranked", "filled"]


@dataclass(frozen=True, slots=True)
class MiningSettings:
    """The number of negatives from each source; the first two choose from the `depth` nearest skills."""

    depth: int = 50
    semantic: int = 4
    lexical: int = 3
    category: int = 2
    random: int = 1

    @property
    def total(self) -> int:
        """Return the number of negatives per query."""
        return self.semantic + self.lexical + self.category + self.random


class Negative(NamedTuple):
    """A skill that does not serve a query, and where it was found."""

    row: int
    source: Source


@dataclass(frozen=True, slots=True)
class Mined:
    """The negatives of each query; the numbers `found` by source, and of pairs `removed` by layer."""

    negatives: list[list[Negative]]
    found: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Pool:
    """The skills that negatives are drawn from: `rows` has shape `(p,)`, the rest is by position in it."""

    rows: Rows
    vectors: Vectors
    lexical: Lexical
    categories: Sequence[str]


class _NegativesOfQuery:
    """Collects the negatives of one query: no skill twice, and no false negative."""

    def __init__(self, positive: int, false: FalseNegatives, mined: Mined) -> None:
        self._positive, self._false, self._mined = positive, false, mined
        self._known: dict[int, Layer | None] = {}
        self.taken: dict[int, Negative] = {}

    def take(self, rows: Iterable[int], most: int, source: Source) -> None:
        """Take the first `most` rows that are true negatives."""
        left = most
        for row in rows:
            if left <= 0:
                return
            if row != self._positive and row not in self.taken and self._true(row):
                self.taken[row] = Negative(row, source)
                self._mined.found[source] += 1
                left -= 1

    def fill(self, rows: Rows, most: int, draw: np.random.Generator) -> None:
        """Take rows at random until there are `most` negatives; add them to the result."""
        drawn = (int(rows[at]) for at in _drawn(len(rows), draw))
        self.take(drawn, most - len(self.taken), "filled")
        self._mined.negatives.append(list(self.taken.values()))

    def _true(self, row: int) -> bool:
        if row not in self._known:
            self._known[row] = layer = self._false.layer(self._positive, row)
            if layer is not None:
                self._mined.removed[layer] += 1
        return self._known[row] is None


def mine_negatives(
    queries: Sequence[TrainingQuery],
    asked: Vectors,
    pool: Pool,
    false: FalseNegatives,
    settings: MiningSettings,
    draw: np.random.Generator,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Mined:
    """Return the negatives of each query, in the order semantic, lexical, category, random.

    Semantic ones are drawn from the skills nearest to the query, lexical ones are the best of these by BM25F,
    category ones share the positive's category, random ones do not. If a source has too few, also because
    false negatives were removed, the rest is drawn from the whole pool.

    `asked` has the queries' unit vectors, shape `(q, d)`; their positives lie in the pool. `report` is called
    with the number of queries done and their total.
    """
    mined = Mined([])
    _, categories = np.unique(pool.categories, return_inverse=True)
    place = {row: at for at, row in enumerate(pool.rows.tolist())}
    for done, (query, vector) in enumerate(zip(queries, asked, strict=True), start=1):
        negatives = _NegativesOfQuery(query.row, false, mined)
        near = _nearest(pool.vectors @ vector, settings.depth, place[query.row])
        scores = pool.lexical.scores(query.text)[near]
        category = categories[place[query.row]]
        negatives.take(pool.rows[draw.permutation(near)].tolist(), settings.semantic, "semantic")
        best = near[np.argsort(-scores, kind="stable")][: int((scores > 0).sum())]
        negatives.take(pool.rows[best].tolist(), settings.lexical, "lexical")
        same = draw.permutation(np.flatnonzero(categories == category))
        negatives.take(pool.rows[same].tolist(), settings.category, "category")
        other = (at for at in _drawn(len(pool.rows), draw) if categories[at] != category)
        negatives.take((int(pool.rows[at]) for at in other), settings.random, "random")
        negatives.fill(pool.rows, settings.total, draw)
        report(done, len(queries))
    return mined


def candidate_lists(
    queries: Sequence[TrainingQuery],
    ranked: Sequence[Sequence[int]],
    among: Rows,
    false: FalseNegatives,
    most: int,
    draw: np.random.Generator,
) -> Mined:
    """Return for each query the candidates that a reranker learns to rank below its positive (section 4.3).

    `ranked` has the rows that the first stage found for each query, best first. Rows of `among` fill up lists
    to `most` candidates at random, if false negatives left them too short.
    """
    mined = Mined([])
    for query, rows in zip(queries, ranked, strict=True):
        negatives = _NegativesOfQuery(query.row, false, mined)
        negatives.take(rows, most, "ranked")
        negatives.fill(among, most, draw)
    return mined


def _nearest(cosines: Vectors, depth: int, positive: int) -> Rows:
    """Return the positions of the `depth` nearest skills without the positive, nearest first."""
    cosines = cosines.copy()
    cosines[positive] = -np.inf
    most = min(depth, len(cosines) - 1)
    best = np.argpartition(-cosines, max(most - 1, 0))[:most]
    return np.asarray(best[np.lexsort((best, -cosines[best]))], dtype=np.int64)


def _drawn(size: int, draw: np.random.Generator) -> Iterator[int]:
    """Yield each position once in random order."""
    # Mostly one of the first is taken, and a permutation of the whole pool takes longer than all the rest.
    yield from dict.fromkeys(draw.integers(size, size=16).tolist())
    yield from draw.permutation(size).tolist()
