"""The terms of a text, by which it is looked up: words, parts of identifiers, stems, pairs of characters."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

from tasks.refine.text.words import IDENTIFIER_PART, UNSPACED_CLASS, WORD, stem

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
