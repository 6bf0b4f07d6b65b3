"""BM25F, the lexical scores of skills over name, description, headings and body."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storage.errors import StorageError
from tasks.retrieve.routing.postings import (
    FIELDS,
    Counts,
    Offsets,
    Postings,
    Rows,
    TermHashes,
    function_terms,
    term_counts,
)

Scores = npt.NDArray[np.float32]
_K1, _B = 1.5, 0.75
_MOST = 500  # terms of a query, the rarest; no task that people write has more
_HEAD = [FIELDS.index("name"), FIELDS.index("description")]
_POSTINGS_AT_ONCE = 4_000_000  # of 16 bytes each as single precision: the array of all fields fits in memory


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Terms with the documents that hold them; `impacts`, shape `(P,)`, are weighted saturated counts."""

    terms: TermHashes
    starts: Offsets
    rows: Rows
    impacts: Scores
    documents: int

    def known(self, hashes: Collection[int]) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        """Return the numbers of the terms that the index knows, and which of `hashes` these are."""
        asked = np.fromiter(hashes, dtype=np.uint64, count=len(hashes))
        at = np.searchsorted(self.terms, asked)
        inside = at < len(self.terms)
        inside[inside] = self.terms[at[inside]] == asked[inside]
        return at[inside], inside

    def added(self, weighed: Iterable[tuple[int, float]]) -> Scores:
        """Return every document's score for weighted terms, shape `(documents,)`; 0 if it holds none."""
        scores = np.zeros(self.documents, dtype=np.float32)
        for term, weight in weighed:
            span = slice(self.starts[term], self.starts[term + 1])
            # A row occurs once a term, so that adding in place loses nothing.
            scores[self.rows[span]] += np.float32(weight) * self.impacts[span]
        return scores


class Described(_Weighted):
    """BM25 over name and description as one text.

    The rarity of a word is taken among descriptions, because a word that is common in bodies may name a need
    in a description. Each query word counts once, English function words included.
    """

    def scores(self, query: str) -> Scores:
        """Return every document's score for a query, shape `(documents,)`; 0 if they share no term."""
        known, _ = self.known(sorted(term_counts(query)))
        held = self.starts[known + 1] - self.starts[known]
        return self.added((term, 1.0) for term in known[np.argsort(held, kind="stable")[:_MOST]].tolist())


def described_of(postings: Postings) -> Described:
    """Return the BM25 index of names and descriptions from postings."""
    counts: Counts = np.asarray(postings.counts)[:, _HEAD]
    held = np.flatnonzero(counts.any(axis=1))
    frequency = counts[held].sum(axis=1, dtype=np.float32)
    rows, term = np.asarray(postings.rows)[held], postings.spread()[held]
    lengths = np.asarray(postings.lengths)[:, _HEAD].sum(axis=1).astype(np.float32)
    damping = 1 - _B + _B * lengths / max(float(lengths.mean()) if len(lengths) else 0.0, 1e-9)
    found = np.bincount(term, minlength=len(postings.terms))
    rarity = _rarity(found, len(lengths)).astype(np.float32)
    impacts = rarity[term] * frequency / (frequency + _K1 * damping[rows])
    used = found > 0
    starts = np.concatenate([[0], np.cumsum(found[used])]).astype(np.int64)
    return Described(np.asarray(postings.terms)[used], starts, rows, impacts.astype(np.float32), len(lengths))


class Descriptions:
    """The `Described` of postings, computed by the first query that needs it, because most queries are short.

    Threads may share one.
    """

    def __init__(self, postings: Postings) -> None:
        self._postings, self._making = postings, threading.Lock()
        self._made: Described | None = None

    def scores(self, query: str) -> Scores:
        """Return every document's score for a query, as `Described.scores`.

        Raises `StorageError` if the postings contradict themselves.
        """
        with self._making:
            try:
                self._made = self._made or described_of(self._postings)
            except (ValueError, IndexError) as error:
                msg = f"the kept routing index is damaged ({error}): `skillery doctor` mends it"
                raise StorageError(msg) from error
        return self._made.scores(query)


@dataclass(frozen=True, slots=True)
class Bm25fSettings:
    """The constants of BM25F (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009).

    `weights` and `length_shares` (b) are those of name, description, headings and body. `rarity` is the power
    of the inverse document frequency: above 1 it discounts the words that occur in any task, of which a long
    task has many. A query is cut to its `terms` heaviest terms.
    """

    weights: tuple[float, float, float, float] = (2.0, 2.0, 0.5, 1.0)
    length_shares: tuple[float, float, float, float] = (0.5, 0.5, 0.75, 1.0)
    k1: float = 4.0
    rarity: float = 1.25
    terms: int = 100


@dataclass(frozen=True, slots=True)
class Lexical(_Weighted):
    """The BM25F index over all fields, with impacts in [0, 1); `described` is of the descriptions alone."""

    settings: Bm25fSettings
    described: Descriptions

    def scores(self, query: str) -> Scores:
        """Return every document's score for a query, shape `(documents,)`; 0 if they share no term."""
        return self.added(self.weighed(query))

    def weighed(self, query: str) -> list[tuple[int, float]]:
        """Return the terms of a query that the index knows, with their weights, the heaviest first.

        A term that occurs n times counts 1 + ln n times, because a text often repeats words of its style.
        English function words count only if the query has no other words.
        """
        counts = _counted(query)
        at, known = self.known(counts)
        weights = self._weights(counts)[known]
        order = np.lexsort((at, -weights))[: self.settings.terms]
        return [(int(at[i]), float(weights[i])) for i in order]

    def highest(self, query: str) -> float:
        """Return what a score cannot exceed: the weights of the query's heaviest terms, known or not."""
        return float(np.sort(self._weights(_counted(query)))[::-1][: self.settings.terms].sum())

    def _weights(self, counts: Mapping[int, int]) -> npt.NDArray[np.float64]:
        times = np.array(list(counts.values()), dtype=np.float64)
        return np.asarray(self.rarities(list(counts)) ** self.settings.rarity * (1 + np.log(times)))

    def rarities(self, terms: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the inverse document frequency of terms, shape `(terms,)`; of unknown ones the largest."""
        found = np.zeros(len(terms), dtype=np.int64)
        at, known = self.known(terms)
        found[known] = self.starts[at + 1] - self.starts[at]
        return _rarity(found, self.documents)


@functools.lru_cache(maxsize=16)  # a search asks for scores, and then for the highest that there could be
def _counted(query: str) -> dict[int, int]:
    counts = term_counts(query)
    return {t: n for t, n in counts.items() if t not in function_terms()} or dict(counts)


def _rarity(found: Offsets, documents: int) -> npt.NDArray[np.float64]:
    """Return the inverse document frequency, above 0, of terms that are found in so many documents."""
    return np.asarray(np.log1p((documents - found + 0.5) / (found + 0.5)), dtype=np.float64)


def lexical_of(postings: Postings, settings: Bm25fSettings | None = None) -> Lexical:
    """Return the BM25F index of postings."""
    settings = settings or Bm25fSettings()
    return lexical_with(postings, _impacts(postings, settings), settings)


def lexical_with(postings: Postings, impacts: Scores, settings: Bm25fSettings) -> Lexical:
    """Return the BM25F index of postings whose impacts are known."""
    terms, starts, rows = postings.terms, postings.starts, postings.rows
    return Lexical(terms, starts, rows, impacts, len(postings.lengths), settings, Descriptions(postings))


def _impacts(postings: Postings, settings: Bm25fSettings) -> Scores:
    """Return tf / (k1 + tf); tf sums the counts of all fields, each weighted and divided by its length."""
    mean = np.maximum(postings.lengths.mean(axis=0), 1e-9) if len(postings.lengths) else np.ones(4)
    shares = np.array(settings.length_shares)
    damping = 1 - shares + shares * postings.lengths / mean
    # A share of 1 and no length: the field is blank, and no term of it is counted.
    factors = (np.array(settings.weights) / np.maximum(damping, 1e-9)).astype(np.float32)
    impacts = np.empty(len(postings.rows), dtype=np.float32)
    for start in range(0, len(impacts), _POSTINGS_AT_ONCE):
        some = slice(start, start + _POSTINGS_AT_ONCE)
        counts = postings.counts[some].astype(np.float32)
        frequency = np.einsum("pf,pf->p", counts, factors[postings.rows[some]])
        impacts[some] = frequency / (settings.k1 + frequency)
    return impacts
