"""Word shingles of texts in any script, as sets of 64-bit hashes: near-duplicates share most of them."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tasks.refine.text.words import UNSPACED

Hashes = npt.NDArray[np.uint64]
SHINGLE_WORDS = 5
# To be raised when the same text gives other hashes: stored signatures are then computed again.
SHINGLE_RULE = "words5.1"
_BLOCK_CHARACTERS = 500_000
_SLOTS = 2**18
_SEPARATOR, _WORD, _ALONE = 0, 1, 2
# No letter stands beyond.
_ASSIGNED = 0x40000
_BASE, _CHAIN = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93


def shingle_sets(bodies: Iterable[str]) -> Iterator[Hashes]:
    """Yield each canonical text's set of word 5-shingles as sorted, unique 64-bit hashes, in the order given.

    A word is a run of letters, digits, marks and underscores in lower case; in a script without spaces each
    character is a word. A text of fewer than five words has no shingles. The hashes are the same on every
    machine. By chance, two sets of a thousand hashes share one in 10^13 pairs.
    """
    block: list[str] = []
    characters = 0
    for body in bodies:
        block.append(body.lower())
        characters += len(body)
        if characters > _BLOCK_CHARACTERS:
            yield from _block_sets(block)
            block, characters = [], 0
    yield from _block_sets(block)


def jaccard(one: Hashes, other: Hashes) -> float:
    """Return the Jaccard similarity of two sets (sorted, unique hashes), 0 to 1; 0 if both are empty."""
    both = np.sort(np.concatenate([one, other]))
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return shared / max(both.size - shared, 1)


def jaccards(one: Hashes, others: Sequence[Hashes]) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of a set with each of many, none empty: as `jaccard` does, but faster."""
    # A table from low bits to places in `one`; each hit is checked, so empty and shared slots do no harm.
    slots = np.zeros(_SLOTS, np.int32)
    slots[one & np.uint64(_SLOTS - 1)] = np.arange(one.size)
    found, lost = np.concatenate(others), one[one[slots[one & np.uint64(_SLOTS - 1)]] != one]
    hits = (one[slots[found & np.uint64(_SLOTS - 1)]] == found) | np.isin(found, lost)
    sizes = np.array([other.size for other in others])
    shared = np.add.reduceat(hits, np.cumsum(sizes) - sizes, dtype=np.int64)
    return np.asarray(shared / (one.size + sizes - shared), dtype=np.float64)


def _block_sets(lowered: Sequence[str]) -> Iterator[Hashes]:
    ends = np.cumsum([len(text) + 1 for text in lowered])
    words, starts = _words("\n".join(lowered))
    bounds = np.concatenate([[0], np.searchsorted(starts, ends)])
    shingles = _chained(words)
    for first, end in itertools.pairwise(bounds.tolist()):
        found = np.sort(shingles[first : max(end - SHINGLE_WORDS + 1, first)])
        yield found[np.diff(found, prepend=~found[:1]) != 0]


def _words(text: str) -> tuple[Hashes, npt.NDArray[np.intp]]:
    """Return the hash of each word of a text and the offset of its first character."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _kinds()[codes]
    before = np.concatenate([np.zeros(1, np.uint8), kinds[:-1]])
    starts = np.flatnonzero((kinds == _ALONE) | ((kinds == _WORD) & (before != _WORD)))
    if not starts.size:
        return np.zeros(0, np.uint64), starts
    # A word's hash is the sum of its characters' codes, each times the power of an odd number by its place.
    inside = np.flatnonzero(kinds != _SEPARATOR)
    first = np.searchsorted(inside, starts)
    lengths = np.diff(first, append=inside.size)
    places = np.arange(inside.size) - np.repeat(first, lengths)
    powers = np.multiply.accumulate(np.full(int(lengths.max()), _BASE, np.uint64))
    terms = codes[inside].astype(np.uint64) * powers[places]
    return _mixed(np.add.reduceat(terms, first)), starts


def _chained(words: Hashes) -> Hashes:
    """Return the hash of each run of five words, by its first word; empty where there are fewer."""
    runs = max(words.size - SHINGLE_WORDS + 1, 0)
    chained = np.zeros(runs, np.uint64)
    for place in range(SHINGLE_WORDS):
        chained = chained * np.uint64(_CHAIN) + words[place : place + runs]
    return _mixed(chained)


def _mixed(values: Hashes) -> Hashes:
    """Mix the bits of values by the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)), dtype=np.uint64)


@functools.cache
def _kinds() -> npt.NDArray[np.uint8]:
    """Return for each Unicode character whether it separates words, is part of one, or is one by itself."""
    kinds = np.zeros(0x110000, np.uint8)
    for run in re.finditer(r"\w+", "".join(map(chr, range(_ASSIGNED)))):
        kinds[run.start() : run.end()] = _WORD
    others = np.flatnonzero(kinds[:_ASSIGNED] == _SEPARATOR).tolist()
    kinds[[code for code in others if unicodedata.category(chr(code)) in ("Mn", "Mc")]] = _WORD
    kinds[0xFE00:0xFE10] = _SEPARATOR  # selects an emoji's looks
    for first, last in UNSPACED:
        kinds[first : last + 1][kinds[first : last + 1] == _WORD] = _ALONE
    return kinds
