"""Mines hard negatives for training from SkillRouter's four sources, without false ones (section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from tasks.models.protocols import Vectors
from tasks.refine.duplicates.shingles import Hashes, jaccard
from tasks.retrieve.routing.bm25f import Lexical
from tasks.retrieve.routing.postings import term_sequence
from tasks.retrieve.routing.router import plain_name
from tasks.retrieve.routing.skill import Skill
from tasks.train.queries import TrainingOptions, TrainingQuery
from tasks.train.splits import Rows

Source = Literal["semantic", "lexical", "category", "random", "ranked", "filled"]
Layer = Literal["name", "body", "embedding"]
_CHAIN = np.uint64(0xD6E8FEB86659FD93)


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


class FalseNegatives:
    """SkillRouter's filter of skills that serve a query as well as its own, in three layers (section 4.2).

    `vectors`, shape `(n, d)`, are unit vectors of name and description by row.
    """

    def __init__(self, skills: Sequence[Skill], vectors: Vectors, options: TrainingOptions) -> None:
        self._skills, self._vectors, self._options = skills, vectors, options
        self._trigrams: dict[int, Hashes] = {}

    def layer(self, positive: int, candidate: int) -> Layer | None:
        """Return the first layer in which a candidate is a second positive, None for a true negative."""
        if not self._options.drop_false:
            return None
        if plain_name(self._skills[positive].name) == plain_name(self._skills[candidate].name):
            return "name"
        if jaccard(self._of(positive), self._of(candidate)) >= self._options.false_body:
            return "body"
        if float(self._vectors[positive] @ self._vectors[candidate]) >= self._options.false_embedding:
            return "embedding"
        return None

    def _of(self, row: int) -> Hashes:
        if row not in self._trigrams:
            self._trigrams[row] = trigrams(self._skills[row].body)
        return self._trigrams[row]


def trigrams(text: str) -> Hashes:
    """Return the set of a text's word trigrams as sorted, unique hashes; empty below three words."""
    terms = np.array(term_sequence(text), dtype=np.uint64)
    return np.unique((terms[:-2] * _CHAIN + terms[1:-1]) * _CHAIN + terms[2:])


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
    queries: Sequence[TrainingQuery], asked: Vectors, pool: Pool, false: FalseNegatives,
    options: TrainingOptions, draw: np.random.Generator,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Mined:  # fmt: skip
    """Return the negatives of each query, in the order semantic, lexical, category, random.

    Semantic ones are drawn from the skills nearest to the query, lexical ones are the best of these by BM25F,
    category ones share the positive's category, random ones do not. If a source has too few, also because
    false negatives were removed, the rest is drawn from the whole pool. (The miner of sentence-transformers
    has the first source alone, and encodes texts whose vectors are here already.)

    `asked` has the queries' unit vectors, shape `(q, d)`; their positives lie in the pool. `report` is called
    with the number of queries done and their total.
    """
    mined = Mined([])
    _, categories = np.unique(pool.categories, return_inverse=True)
    place = {row: at for at, row in enumerate(pool.rows.tolist())}
    for done, (query, vector) in enumerate(zip(queries, asked, strict=True), start=1):
        negatives = _NegativesOfQuery(query.row, false, mined)
        near = _nearest(pool.vectors @ vector, options.depth, place[query.row])
        scores = pool.lexical.scores(query.text)[near]
        category = categories[place[query.row]]
        negatives.take(pool.rows[draw.permutation(near)].tolist(), options.semantic, "semantic")
        best = near[np.argsort(-scores, kind="stable")][: int((scores > 0).sum())]
        negatives.take(pool.rows[best].tolist(), options.lexical, "lexical")
        same = draw.permutation(np.flatnonzero(categories == category))
        negatives.take(pool.rows[same].tolist(), options.category, "category")
        other = (at for at in _drawn(len(pool.rows), draw) if categories[at] != category)
        negatives.take((int(pool.rows[at]) for at in other), options.random, "random")
        negatives.fill(pool.rows, options.negatives, draw)
        report(done, len(queries))
    return mined


def candidate_lists(
    queries: Sequence[TrainingQuery], ranked: Sequence[Sequence[int]], among: Rows, false: FalseNegatives,
    most: int, draw: np.random.Generator,
) -> Mined:  # fmt: skip
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
