"""Terms of a document's pieces: its words are counted once, so that a request only looks its terms up."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.refine.text.words import NAME_PART, UNSPACED_CHARACTER

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]
# How much longer than a term's stem a word may be; a short term stands alone or in the plural.
_SUFFIX = 5
_SHORT = 3
_SHORT_SUFFIX = 1


@dataclass(frozen=True, slots=True)
class WordIndex:
    """An inverted index of the words of `texts` texts; `words` ascend, each once.

    Word `i` occurs in the texts with the numbers `places[bounds[i]:bounds[i + 1]]`, repeats included.
    """

    words: Sequence[str]
    bounds: Integers
    places: Integers
    texts: int


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case; identifiers are split, unspaced scripts give pairs of signs."""
    if text.isascii():
        return [word.lower() for word in NAME_PART.findall(text)]
    return [part for word in NAME_PART.findall(text) for part in _parts(word.lower())]


def _parts(word: str) -> Iterable[str]:
    if not UNSPACED_CHARACTER.search(word):
        return (word,)
    return (word[i : i + 2] for i in range(max(len(word) - 1, 1)))


def index_words(texts: Iterable[str]) -> WordIndex:
    """Return the inverted index of the words of texts."""
    known: dict[str, int] = {}
    found: list[int] = []
    sizes: list[int] = []
    for text in texts:
        words = words_of(text)
        sizes.append(len(words))
        found += [known.setdefault(word, len(known)) for word in words]
    words = sorted(known)
    rank = np.empty(len(words), dtype=np.int64)
    rank[[known[word] for word in words]] = np.arange(len(words))
    ranks = rank[np.array(found, dtype=np.int64)]
    places = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(ranks, kind="stable")]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(ranks, minlength=len(words)))])
    return WordIndex(words, bounds.astype(np.int64), places, len(sizes))


def term_counts(index: WordIndex, terms: Sequence[str]) -> Floats:
    """Return the counts, shape `(terms, texts)`, of words that begin with a term and are hardly longer.

    Digits and unspaced scripts match exactly.
    """
    counts = np.zeros((len(terms), index.texts), dtype=np.float32)
    for row, term in enumerate(terms):
        found = [index.places[index.bounds[i] : index.bounds[i + 1]] for i in _matching(index.words, term)]
        if found:
            counts[row] = np.bincount(np.concatenate(found), minlength=index.texts)
    return counts


def _matching(words: Sequence[str], term: str) -> Iterator[int]:
    longest = len(term) + (_SHORT_SUFFIX if len(term) <= _SHORT else _SUFFIX)
    whole = term.isdigit() or UNSPACED_CHARACTER.search(term) is not None
    at = bisect_left(words, term)
    while at < len(words) and words[at].startswith(term):
        if len(words[at]) <= longest and not (whole and words[at] != term):
            yield at
        at += 1


def rarity(counts: Floats) -> Floats:
    """Return the inverse document frequency of each term as in BM25, above 0, from `counts` as in `bm25`."""
    n = counts.shape[1]
    found = (counts > 0).sum(axis=1)
    return np.asarray(np.log(1 + (n - found + 0.5) / (found + 0.5)), dtype=np.float32)


def bm25(counts: Floats, lengths: Floats | Integers, weights: Floats, *, length_share: float) -> Floats:
    """Return each text's BM25 contributions by term, with k1 = 1.2 and `length_share` as b.

    `counts`, shape `(terms, texts)`, says how often each term occurs in each text; `weights` are the terms'.
    """
    mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
    damping = (1.2 * (1 - length_share + length_share * lengths / mean)).astype(np.float32)
    contributions: Floats = counts * (np.float32(2.2) * weights[:, None])
    contributions /= counts + damping
    return contributions


def shares_word(text: str, query: str) -> bool:
    """Tell whether a word of a query, of three letters or more, stands in a text, if only within a word."""
    held = text.lower()
    words = [word for word in words_of(query) if len(word) >= _SHORT or not word.isascii()]
    return not words or any(word in held for word in words)


_DIMENSION = 1024


class WordVectors:
    """Encodes a text by its words, for documents that a sentence encoder would take too long for.

    A vector holds the logarithms of the words' counts, each at a place that the word's hash gives.
    Implements `tasks.models.protocols.Encoder`: unit vectors, float32 of shape `(texts, 1024)`. The cosine of
    two texts is high if they share words, and 0 if they share none but for collisions of hashes.
    """

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text; a text without words has the vector of zeros but for one place."""
        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word, count in Counter(words_of(text)).items():
                row[crc32(word.encode("utf-8", "surrogatepass")) % _DIMENSION] += np.log1p(count)
            if not row.any():
                row[0] = 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors
