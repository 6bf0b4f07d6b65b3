"""How names and descriptions alone match a task, word for word: what tells of a long task's further needs."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storage.errors import StorageError
from tasks.retrieve.routing_postings import FIELDS, Counts, Offsets, Postings, Rows
from tasks.retrieve.routing_terms import TermHashes, term_counts

_K1, _B = 1.5, 0.75
_MOST = 500  # terms of a query, the rarest; no task that people write has more
_HEAD = [FIELDS.index("name"), FIELDS.index("description")]


@dataclass(frozen=True, slots=True)
class Described:
    """BM25 over name and description as one text; `impacts`, shape `(P,)`, are weighted saturated counts.

    A word is as rare as it is among descriptions: one that bodies are full of may name a need there. Each
    counts once, English function words among them.
    """

    terms: TermHashes
    starts: Offsets
    rows: Rows
    impacts: npt.NDArray[np.float32]
    documents: int

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """Return every document's score for a query, shape `(documents,)`; 0 where they share no term."""
        scores = np.zeros(self.documents, dtype=np.float32)
        asked = np.array(sorted(term_counts(query)), dtype=np.uint64)
        at = np.searchsorted(self.terms, asked)
        inside = at < len(self.terms)
        known = at[inside][self.terms[at[inside]] == asked[inside]]
        held = self.starts[known + 1] - self.starts[known]
        for term in known[np.argsort(held, kind="stable")[:_MOST]].tolist():
            span = slice(self.starts[term], self.starts[term + 1])
            # A row occurs once a term, so that adding in place loses nothing.
            scores[self.rows[span]] += self.impacts[span]
        return scores


def described_of(postings: Postings) -> Described:
    """Return what postings say of names and descriptions, ready to score with."""
    counts: Counts = np.asarray(postings.counts)[:, _HEAD]
    held = np.flatnonzero(counts.any(axis=1))
    frequency = counts[held].sum(axis=1, dtype=np.float32)
    rows, term = np.asarray(postings.rows)[held], postings.spread()[held]
    lengths = np.asarray(postings.lengths)[:, _HEAD].sum(axis=1).astype(np.float32)
    damping = 1 - _B + _B * lengths / max(float(lengths.mean()) if len(lengths) else 0.0, 1e-9)
    found = np.bincount(term, minlength=len(postings.terms))
    rarity = np.log1p((len(lengths) - found + 0.5) / (found + 0.5)).astype(np.float32)
    impacts = rarity[term] * frequency / (frequency + _K1 * damping[rows])
    used = found > 0
    return Described(
        np.asarray(postings.terms)[used],
        np.concatenate([[0], np.cumsum(found[used])]).astype(np.int64),
        rows,
        impacts.astype(np.float32),
        len(lengths),
    )


class Descriptions:
    """The names and descriptions of postings as `Described`, made when first asked: most tasks are short.

    Threads may share one.

    Args:
        postings: Read when first asked.
    """

    def __init__(self, postings: Postings) -> None:
        self._postings, self._made, self._making = postings, None, threading.Lock()

    _made: Described | None

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """Return every document's score for a query, as `Described.scores`.

        Raises:
            StorageError: The postings contradict themselves.
        """
        with self._making:
            if self._made is None:
                self._made = self._make()
        return self._made.scores(query)

    def _make(self) -> Described:
        try:
            return described_of(self._postings)
        except (ValueError, IndexError) as error:
            msg = f"the kept routing index is damaged ({error}): `skillery doctor` mends it"
            raise StorageError(msg) from error
