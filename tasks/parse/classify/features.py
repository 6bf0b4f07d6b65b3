"""Features of a fragment for the local classifier: cues and words, each named by its place.

A cue is found in a fragment's shape, wording or place, and votes for or against each type with the weights
of `tasks.train.local_model`. Words are those of a fragment, its headings and its neighbours.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from itertools import chain, pairwise
from typing import Any, NamedTuple

from tasks.parse.classify.protocol import FragmentInContext
from tasks.refine.text.words import CLASSIFIER_TOKEN, CUE_WORD


def as_words(text: str) -> frozenset[str]:
    """Return the words of a text that lists them."""
    return frozenset(text.split())


_FLAGS = re.compile(r"\A(?:\(\?[im]+\))?")


def _patterns(kind: str) -> list[tuple[str, re.Pattern[str]]]:
    """Return patterns by name; those of a beginning are tried at no other place."""
    begin = r"\\A" if kind in ("openings", "heading") else ""
    return [(n, re.compile(_FLAGS.sub(rf"\g<0>{begin}(?:", p) + ")")) for n, p in _LEXICON[kind].items()]


_LEXICON: dict[str, Any] = tomllib.loads(
    resources.files("tasks.parse").joinpath("data/lexicon.toml").read_text("utf-8")
)
VERBS, _BEFORE_VERB = as_words(_LEXICON["verbs"]), as_words(_LEXICON["before_verb"])
_OPENINGS, _HAS, _CODE, _TABLE, _HEADING = map(_patterns, ("openings", "inside", "code", "table", "heading"))
# Characters. A type shows in how a fragment begins; more of long code and tables would only cost time.
_READ = 400
_LENGTHS = (3, 6, 12, 24, 48, 96, 192, 400)
_WORD_COUNTS = (1, 2, 3, 5, 8, 14, 25)
# The term of a definition: `**Term**: what it is`.
_TERM = re.compile(
    r"\A(?:\*\*[^*\n]{1,80}\*\*|`[^`\n]{1,80}`|[^.:：\n]{1,40}(?=[:：]\s))"
    r"\s*+(?:[:：–—-]*+\s*+(?=\S)|[:：–—-]*(?=[:：–—-]))"
)
_AFTER_TERM = as_words("code quoted gerund third_person if article lowercase see for example")
_NOMINAL = re.compile(
    r"\A[a-z-]+(?:tions?|ments?|ity|ities|ness|ances?|ences?|ers?|ors?|ures?|ics|ology|isms?)$"
)
_DETERMINERS = as_words(
    """a all an and any at both by each every existing for from how if in into it its new no on only or our
    out that the their them these this those to under up using what when where whether which with your"""
)
_MARKER = re.compile(r"\A\s*+(?:[-*+•]|\d{1,3}[.)])\s+")
# The cues of a neighbour that tell something about the fragment beside it.
_ECHOED = as_words(
    """has:colon_end has:stop_end verb verb_later verbless verb_object nominal finite opens:checkbox
    opens:bold_only opens:bold_term opens:bold opens:code_term opens:code opens:tick opens:cross opens:link
    opens:if opens:gerund opens:user_wants opens:third_person opens:lowercase opens:article opens:title"""
)


_FINITE = as_words("is are was has have does can will uses")
# The places whose cues are named after them: `next:verb`. Others bear their whole name, at the place "".
_PLACES = as_words("topic heading above top path previous next")
PlacedCues = tuple[str, Sequence[str]]


class _TextCues(NamedTuple):
    shape: tuple[str, ...]
    topics: tuple[str, ...]


def _vocabulary() -> tuple[dict[str, list[tuple[str, str]]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Split the lexicon into `first word -> (phrase, topic)`, stems, and terms without word boundaries."""
    phrases: dict[str, list[tuple[str, str]]] = {}
    stems: list[tuple[str, str]] = []
    foreign: list[tuple[str, str]] = []
    for topic, terms in _LEXICON["topics"].items():
        for term in terms.split():
            phrase = term.rstrip("*").replace("_", " ")
            if not term.isascii():
                foreign.append((term, topic))
            elif " " not in phrase and term.endswith("*"):
                stems.append((phrase, topic))
            else:
                phrases.setdefault(phrase.split()[0], []).append((phrase, topic))
    return phrases, stems, foreign


_PHRASES, _STEMS, _FOREIGN = _vocabulary()
# Most texts beyond ASCII have dashes and icons, not one character of these terms.
_MAYBE_FOREIGN = re.compile(f"[{re.escape(''.join({term[0] for term, _ in _FOREIGN}))}]")
_RANK = {topic: rank for rank, topic in enumerate(_LEXICON["topics"])}


@lru_cache(maxsize=65536)
def _topics_of_word(word: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    begun = _PHRASES.get(word, [])
    topics = [topic for phrase, topic in begun if phrase == word]
    topics += [topic for stem, topic in _STEMS if word.startswith(stem)]
    return tuple(topics), tuple((phrase, topic) for phrase, topic in begun if phrase != word)


def _wording(text: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the text's words in lower case, and its topics in the order of the lexicon."""
    lowered = text.lower()
    words = CUE_WORD.findall(lowered)
    found: set[str] = set()
    # A phrase is looked for only where its first word occurs: most texts have few topics.
    for word in set(words):
        topics, phrases = _topics_of_word(word)
        if topics:
            found.update(topics)
        if phrases:
            found.update([topic for phrase, topic in phrases if phrase in lowered])
    if not lowered.isascii() and _MAYBE_FOREIGN.search(lowered):
        found.update(topic for term, topic in _FOREIGN if term in lowered)
    return words, tuple(sorted(found, key=_RANK.__getitem__))


def _verbs(words: list[str]) -> Iterable[str]:
    """Yield the cues of imperatives: one at the beginning, one later in the text, none."""
    if VERBS.isdisjoint(words):
        yield "verbless"
        return
    opening = next((word for word in words[:3] if word not in _BEFORE_VERB), "")
    if opening in VERBS:
        yield "verb"
    if any(word in VERBS and before in ("and", "then", "to") for before, word in pairwise(words)):
        yield "verb_later"


def _grammar(words: list[str]) -> Iterable[str]:
    """Yield the cues of the first two words and of length that tell an instruction from a topic."""
    if not words:
        return
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in VERBS and second in _DETERMINERS:
        yield "verb_object"
    if first not in VERBS and second in ("the", "a", "an", "all", "your", "any", "each", "that"):
        yield "object_second"
    if _NOMINAL.match(first) and first not in VERBS:
        yield "nominal"
    if not _FINITE.isdisjoint(words[1:6]):
        yield "finite"
    yield f"words:{bisect_left(_WORD_COUNTS, len(words))}"


def _after_term(text: str) -> Iterable[str]:
    """Yield the cues of a definition, read from behind its term."""
    term = _TERM.match(text)
    if not term:
        return
    rest = text[term.end() :]
    words = CUE_WORD.findall(rest[:80].lower())
    yield from (f"after:{cue}" for cue in (*_verbs(words), *_grammar(words)))
    yield from (f"after:{n}" for n, pattern in _OPENINGS if n in _AFTER_TERM and pattern.match(rest))


@lru_cache(maxsize=8192)
def _read(text: str) -> _TextCues:
    text = _MARKER.sub("", text, count=1) if _MARKER.match(text) else text
    words, topics = _wording(text)
    shape = [f"opens:{name}" for name, pattern in _OPENINGS if pattern.match(text)]
    shape += [f"has:{name}" for name, pattern in _HAS if pattern.search(text)]
    length = f"length:{bisect_left(_LENGTHS, len(text))}"
    shape += [*_verbs(words), *_grammar(words), *_after_term(text), length]
    return _TextCues(tuple(shape), topics)


@lru_cache(maxsize=8192)
def _read_heading(title: str) -> tuple[str, ...]:
    words, topics = _wording(title)
    return (*topics, *_verbs(words), *(name for name, pattern in _HEADING if pattern.match(title)))


def _block_of(text: str | None) -> str:
    """Return a neighbour's kind of block, guessed from its first characters."""
    opening = text.lstrip()[:3] if text else ""
    if not opening:
        return "none"
    if opening in ("```", "~~~"):
        return "code"
    return "table" if opening[0] == "|" else "text"


@lru_cache(maxsize=8192)
def _read_neighbour(text: str) -> tuple[str, ...]:
    block = _block_of(text)
    if block != "text":
        return (block,)
    cues = _read(text)
    # A text that ends in a colon announces what comes after it.
    leads = "leads:" if "has:colon_end" in cues.shape else ""
    return (*(cue for cue in cues.shape if cue in _ECHOED), *(leads + topic for topic in cues.topics))


def _own_cues(fragment: FragmentInContext) -> list[PlacedCues]:
    if fragment.block in ("code", "table"):
        patterns = _CODE if fragment.block == "code" else _TABLE
        text = fragment.text.lstrip()[:_READ]
        return [("", [f"{fragment.block}:{name}" for name, pattern in patterns if pattern.search(text)])]
    cues = _read(fragment.text[:_READ])
    return [("", cues.shape), ("topic", cues.topics)]


@lru_cache(maxsize=1024)
def _of_headings(path: tuple[str, ...]) -> tuple[list[PlacedCues], PlacedCues]:
    """Return the cues of headings by their place, and of all, which the fragments below them share."""
    read = [_read_heading(title[:_READ]) for title in path]
    places = {"heading": read[-1:], "above": read[-2:-1], "top": read[:-2]}
    placed: list[PlacedCues] = [(place, list(chain(*some))) for place, some in places.items()]
    return placed, ("path", list(chain(*read)))


def find_cues(fragment: FragmentInContext) -> list[str]:
    """Return the names of the cues of a fragment, in a fixed order, each once."""
    named = (f"{place}:{cue}" if place else cue for place, cues in cues_by_place(fragment) for cue in cues)
    return list(dict.fromkeys(named))


def cue_columns(columns: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the columns of cues, named as by `find_cues`, by place and cue."""
    found: dict[str, dict[str, int]] = {place: {} for place in ("", *_PLACES)}
    for name, column in columns.items():
        place, _, cue = name.partition(":")
        if place in _PLACES:
            found[place][cue] = column
        else:
            found[""][name] = column
    return found


def cues_by_place(fragment: FragmentInContext) -> list[PlacedCues]:
    """Return the cues at each place, in a fixed order; a cue may come more than once."""
    path = fragment.heading_path
    # HTML, and any other block, is read as prose.
    block = fragment.block if fragment.block in ("list_item", "code", "table") else "prose"
    # The order of the cues is that in which their weights are added, which decides the last bits.
    headings, whole_path = _of_headings(path)
    return [
        ("", ("any", f"block:{block}", f"depth:{min(len(path), 3)}")),
        *_own_cues(fragment),
        *headings,
        ("previous", _read_neighbour((fragment.previous or "")[:_READ])),
        ("next", _read_neighbour((fragment.next or "")[:_READ])),
        whole_path,
    ]


# Characters and words that are read. Types show early, so that more would only cost time.
_WORDS_READ, _WORDS = 400, 60
_READ_BESIDE, _WORDS_BESIDE = 150, 12
Word = str | tuple[str, str]  # or a pair of words
PlacedWords = tuple[str, Sequence[Word]]


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


def words_around(fragment: FragmentInContext) -> list[PlacedWords]:
    """Return the words by place: of a text (`t`, in code `c`), with pairs and the first three, and around."""
    found = _own_words(fragment)
    for place, text in (("before", fragment.previous), ("after", fragment.next)):
        words = _words_beside((text or "")[:_READ_BESIDE])
        found += [(place, words[:_WORDS_BESIDE]), (f"{place}0", words[:1]), (f"{place}-1", words[-1:])]
    return found


@lru_cache(maxsize=1024)
def _words_beside(text: str) -> list[str]:
    return CLASSIFIER_TOKEN.findall(text.lower())


def words_of_headings(path: tuple[str, ...], block: str) -> list[PlacedWords]:
    """Return the words, and pairs of them, of headings from the innermost outwards (`h`, `a`, `p`).

    They are the same for all fragments below these headings that are of one kind of block. A place may come
    more than once, and so may a word.
    """
    found: list[PlacedWords] = []
    for place, title in zip("ha" + "p" * len(path), path[::-1], strict=False):
        words = CLASSIFIER_TOKEN.findall(title[:_WORDS_READ].lower())
        found += [*_with_pairs(words, place), ("path", words)]
        if place == "h":
            found.append((f"{block}|h", words))
    return found


def _own_words(fragment: FragmentInContext) -> list[PlacedWords]:
    kind = "c" if fragment.block == "code" else "t"
    words = CLASSIFIER_TOKEN.findall(fragment.text[:_WORDS_READ].lower())[:_WORDS]
    return [*_with_pairs(words, kind), *((f"{kind}{at}", words[at : at + 1]) for at in range(3))]


def _with_pairs(words: list[str], place: str) -> list[PlacedWords]:
    return [(place, words), (f"{place}2", list(pairwise(words)))]
