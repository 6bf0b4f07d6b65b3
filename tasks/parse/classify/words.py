"""The words of a fragment, its headings and its neighbours, as features by their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from tasks.parse.classify.protocol import FragmentInContext
from tasks.refine.text.words import CLASSIFIER_TOKEN

# Characters and words that are read. Types show early, so that more would only cost time.
_READ, _WORDS = 400, 60
_READ_BESIDE, _WORDS_BESIDE = 150, 12
Word = str | tuple[str, str]  # or a pair of words
Placed = tuple[str, Sequence[Word]]


def find_words(fragment: FragmentInContext) -> set[str]:
    """Return the words, each named by its place: `t:lid`, and pairs of words `t2:the lid`."""
    placed = [*words_around(fragment), *words_of_headings(fragment.heading_path, fragment.block)]
    return {
        f"{place}:{word if isinstance(word, str) else ' '.join(word)}"
        for place, words in placed
        for word in words
    }


def word_columns(columns: Mapping[str, int]) -> dict[str, dict[Word, int]]:
    """Return the columns of words, named as by `find_words`, by place and word."""
    found: dict[str, dict[Word, int]] = {}
    for name, column in columns.items():
        place, _, word = name.partition(":")
        first, space, second = word.partition(" ")
        found.setdefault(place, {})[(first, second) if space else word] = column
    return found


def words_around(fragment: FragmentInContext) -> list[Placed]:
    """Return the words by place: of a text (`t`, in code `c`), with pairs and the first three, and around."""
    found = _own(fragment)
    for place, text in (("before", fragment.previous), ("after", fragment.next)):
        words = _words_beside((text or "")[:_READ_BESIDE])
        found += [(place, words[:_WORDS_BESIDE]), (f"{place}0", words[:1]), (f"{place}-1", words[-1:])]
    return found


@lru_cache(maxsize=1024)
def _words_beside(text: str) -> list[str]:
    return CLASSIFIER_TOKEN.findall(text.lower())


def words_of_headings(path: tuple[str, ...], block: str) -> list[Placed]:
    """Return the words, and pairs of them, of headings from the innermost outwards (`h`, `a`, `p`).

    They are the same for all fragments below these headings that are of one kind of block. A place may come
    more than once, and so may a word.
    """
    found: list[Placed] = []
    for place, title in zip("ha" + "p" * len(path), path[::-1], strict=False):
        words = CLASSIFIER_TOKEN.findall(title[:_READ].lower())
        found += [*_with_pairs(words, place), ("path", words)]
        if place == "h":
            found.append((f"{block}|h", words))
    return found


def _own(fragment: FragmentInContext) -> list[Placed]:
    kind = "c" if fragment.block == "code" else "t"
    words = CLASSIFIER_TOKEN.findall(fragment.text[:_READ].lower())[:_WORDS]
    return [*_with_pairs(words, kind), *((f"{kind}{at}", words[at : at + 1]) for at in range(3))]


def _with_pairs(words: list[str], place: str) -> list[Placed]:
    return [(place, words), (f"{place}2", list(pairwise(words)))]
