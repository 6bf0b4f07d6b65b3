"""Postings: for each term of a text, by its hash, the skills of a corpus that have it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from tasks.refine.text.words import IDENTIFIER_PART, UNSPACED_CLASS, WORD, stem
from tasks.retrieve.routing.skill import Skill

TermHashes = npt.NDArray[np.uint64]
TERMS_VERSION = 2  # raised only when the same text gives other terms
# A longer run of letters is an encoded blob, which nobody looks for.
_LONGEST = 40
_MOST_CACHED = 1_000_000
_UNSPACED = re.compile(f"{UNSPACED_CLASS}+")
_FUNCTION_WORDS = """
a an the this that these those it its i me my we us our you your he him his she her they them their who which
what and or but nor so if then than as at by for from in into of off on onto out over to up with without about
is are was were be been being am do does did has have had having can could should would will shall may might
must not no there here also just very please
"""
_known: dict[str, tuple[int, ...]] = {}


def term_counts(text: str) -> dict[int, int]:
    """Return how often each term occurs in a text, by the hash of the term.

    A term is a word in lower case; an ASCII word is stemmed as English. The parts of an identifier such as
    `useState` or `HTTPServer2` count too. In scripts without spaces every pair of characters is a term.
    """
    counts: dict[int, int] = {}
    for word, n in Counter(WORD.findall(text)).items():
        for term in _known.get(word) or _terms_of(word):
            counts[term] = counts.get(term, 0) + n
    return counts


def term_sequence(text: str) -> list[int]:
    """Return the hashes of a text's terms in reading order, repeats included."""
    return [term for word in WORD.findall(text) for term in _terms_of(word)]


@cache
def function_terms() -> frozenset[int]:
    """Return the hashes of English function words, which a small index cannot tell by their frequency."""
    return frozenset(term_sequence(_FUNCTION_WORDS))


def _terms_of(word: str) -> tuple[int, ...]:
    found = _known.get(word)
    if found is None:
        if len(_known) >= _MOST_CACHED:
            _known.clear()
        found = _known[word] = tuple(term_hash(term) for term in dict.fromkeys(spelled_terms(word)))
    return found


def spelled_terms(word: str) -> Iterator[str]:
    """Yield the terms of one word, a run of letters and digits."""
    if word.isascii():
        if len(word) <= _LONGEST:
            yield stem(word.lower())
            parts = IDENTIFIER_PART.findall(word) if not (word.islower() or word.isdigit()) else []
            yield from (stem(part.lower()) for part in parts if len(part) > 1 and len(parts) > 1)
        return
    at = 0
    for run in _UNSPACED.finditer(word):
        yield from _spaced(word[at : run.start()])
        chars, at = run.group(), run.end()
        yield from (chars[i : i + 2] for i in range(max(len(chars) - 1, 1)))
    yield from _spaced(word[at:])


def _spaced(word: str) -> Iterator[str]:
    if word and len(word) <= _LONGEST:
        yield word.casefold()


def term_hash(term: str) -> int:
    """Return a term's 64-bit hash, the same in every process."""
    return int.from_bytes(hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest())


Rows = npt.NDArray[np.int32]
Counts = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Sketches = npt.NDArray[np.uint32]
FIELDS = ("name", "description", "headings", "body")
_MOST = 255  # a term is counted no further in one field: what saturates by 20 is flat by then
_DOCUMENTS_PER_PART = 2000
_BINS = 64
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]++(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Postings:
    """The inverted index: where terms occur. Documents are rows, numbered from 0.

    `terms`, ascending, has shape `(T,)`; the postings of term `t` are `starts[t]:starts[t + 1]`. `rows`,
    ascending within a term, has shape `(P,)`, `counts` by field `(P, 4)`, `lengths` in terms by field
    `(N, 4)`, and `sketches` (a MinHash of the terms, one permutation in 64 bins) `(N, 64)`.
    """

    terms: TermHashes
    starts: Offsets
    rows: Rows
    counts: Counts
    lengths: Rows
    sketches: Sketches

    def spread(self) -> npt.NDArray[np.int32]:
        """Return the number of the term of each posting, shape `(P,)`."""
        return np.repeat(np.arange(len(self.terms), dtype=np.int32), np.diff(self.starts))


def headings(body: str) -> str:
    """Return the headings of a Markdown body, a line each."""
    return "\n".join(title.rstrip("#").rstrip(" \t") or title[0] for title in _HEADING.findall(body))


def postings_of(documents: Iterable[Skill]) -> Postings:
    """Return the postings of documents; rows follow the order of the documents."""
    left, parts = iter(documents), []
    while some := list(islice(left, _DOCUMENTS_PER_PART)):
        parts.append(_part(some))
    return joined(parts) if parts else _part([])


def _part(documents: Sequence[Skill]) -> Postings:
    terms: list[int] = []
    rows: list[int] = []
    fields: list[int] = []
    counts: list[int] = []
    lengths = np.zeros((len(documents), len(FIELDS)), dtype=np.int32)
    for row, document in enumerate(documents):
        texts = (document.name, document.description, headings(document.body), document.body)
        for field, text in enumerate(texts):
            found = term_counts(text)
            lengths[row, field] = sum(found.values())
            terms += found.keys()
            counts += found.values()
            rows += [row] * len(found)
            fields += [field] * len(found)
    vocabulary, term = np.unique(np.array(terms, dtype=np.uint64), return_inverse=True)
    # One key per term and document, so that its fields come together.
    key = term.astype(np.int64) * max(len(documents), 1) + np.array(rows, dtype=np.int64)
    keys, posting = np.unique(key, return_inverse=True)
    table = np.zeros((len(keys), len(FIELDS)), dtype=np.uint8)
    table[posting, fields] = np.minimum(np.array(counts, dtype=np.int64), _MOST)
    term_of, row_of = np.divmod(keys, max(len(documents), 1))
    starts = np.searchsorted(term_of, np.arange(len(vocabulary) + 1)).astype(np.int64)
    sketches = _sketches(vocabulary[term_of], row_of, len(documents))
    return Postings(vocabulary, starts, row_of.astype(np.int32), table, lengths, sketches)


def _sketches(terms: TermHashes, rows: Offsets, n: int) -> Sketches:
    """Return the least hash of each document's terms in each bin; equal bins mean similar vocabularies."""
    sketches = np.full((n, _BINS), np.iinfo(np.uint32).max, dtype=np.uint32)
    bins = (terms % np.uint64(_BINS)).astype(np.int64)
    np.minimum.at(sketches, (rows, bins), (terms >> np.uint64(32)).astype(np.uint32))
    return sketches


def joined(parts: Sequence[Postings], places: npt.NDArray[np.int64] | None = None) -> Postings:
    """Return the postings of several parts.

    `places` holds the new row of each document, those of the first part first; without them they follow
    the parts. Where they ascend within each part, nothing is sorted: what is sorted already is merged.
    """
    terms = np.unique(np.concatenate([p.terms for p in parts]))
    offsets = np.cumsum([0, *(len(p.lengths) for p in parts)])
    places = np.arange(offsets[-1]) if places is None else places
    rows = places[np.concatenate([p.rows + o for p, o in zip(parts, offsets[:-1], strict=True)])]
    term = np.concatenate([np.searchsorted(terms, p.terms)[p.spread()] for p in parts])
    order = np.argsort(term * max(len(places), 1) + rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(term, minlength=len(terms)))]).astype(np.int64)
    back = np.argsort(places)
    return Postings(
        terms,
        starts,
        rows[order].astype(np.int32),
        np.concatenate([p.counts for p in parts])[order],
        np.concatenate([p.lengths for p in parts])[back],
        np.concatenate([p.sketches for p in parts])[back],
    )


def kept(postings: Postings, keep: npt.NDArray[np.bool_]) -> Postings:
    """Return the postings of the rows where `keep` is true, renumbered in order; unused terms are removed."""
    number = np.cumsum(keep, dtype=np.int32) - 1
    stays = keep[postings.rows]
    left = np.bincount(postings.spread()[stays], minlength=len(postings.terms))
    used = left > 0
    return Postings(
        postings.terms[used],
        np.concatenate([[0], np.cumsum(left[used])]).astype(np.int64),
        number[postings.rows[stays]].astype(np.int32),
        postings.counts[stays],
        postings.lengths[keep],
        postings.sketches[keep],
    )
