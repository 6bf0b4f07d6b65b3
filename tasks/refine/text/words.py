"""Words and sentences of texts in any script: the patterns that find them, and two ways to stem words.

A caller takes the first pattern that serves. The others differ because weights were fitted on what they
find, or because stored digests and figures of the papers depend on it; each says so.
"""

from __future__ import annotations

import re
from functools import cache

import Stemmer

# First and last characters of kana, Han, Thai and Lao, Myanmar and Khmer, which are written without spaces:
# their text is cut by characters, not words. Hangul is written with spaces.
UNSPACED = (
    (0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF), (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xFF66, 0xFF9D),
)  # fmt: skip
# The same as a character class of a regular expression.
UNSPACED_CLASS = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]"
UNSPACED_CHARACTER = re.compile(UNSPACED_CLASS)

# Letters and digits.
WORD = re.compile(r"[^\W_]+")
# Letters alone, where numbers tell nothing: the language of a text, what an agent was told.
LETTERS = re.compile(r"[^\W\d_]+")
# With underscores, as the papers' BM25 and the folding of evidence have it; an identifier is one word.
IDENTIFIER = re.compile(r"\w+")
# With what follows an apostrophe: the verbs of a request, "don't" among them.
CONTRACTION = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# Hyphens and underscores join: a section's name is mentioned as it is written.
COMPOUND = re.compile(r"[^\W_]+(?:['’_-][^\W_]+)*")
# The parts of an ASCII identifier that routing's index holds: `HTTPServer2` is HTTP, Server and 2.
IDENTIFIER_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# The same in any script, for the scorer of pages, which was fitted on words cut so.
NAME_PART = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![^\W\d_A-Z])|\d+")
# English in lower case, on which the local classifier was fitted: the words of its cues, and its tokens.
CUE_WORD = re.compile(r"[a-z]+(?:[.'’-][a-z]+)*")
CLASSIFIER_TOKEN = re.compile(r"[a-z]+(?:['’-][a-z]+)*|[^\sa-z0-9]|\d+")

# Sentences of short texts; documents are cut by `segment.sentences`.
# A task is cut for the encoder into sentences and lines.
TASK_BREAK = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
# The same for baselines, as their papers have it: Latin marks alone, and no semicolon.
BASELINE_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
# A long node is cut for paging; a colon ends a part, since what follows can be read by itself.
NODE_BREAK = re.compile(r"(?<=[.!?;:。！？])\s+(?=\S)")
# A request is cut for paging into clauses, each of which a page has to answer.
CLAUSE_BREAK = re.compile(
    r"(?<=[.!?;:。！？；：，、])\s*|,\s+"
    r"|(?<!\s)\s+(?:(?:and|then|but|so that|so|while|or)\s+|[-—–]\s+)|\n+|[()]"
)
# Ends of sentences are counted, so that no text has more nodes than can be parsed.
COUNTED_END = re.compile(r"[.!?](?= )|[。！？]")
# The end of a paragraph that is a sentence, with the marks that may close behind it.
PARAGRAPH_END = re.compile(r"[.!?。！？…][\"')\]_*”’]*$")
# Beyond such a break a negation does not reach what is matched by a rule on risks.
NEGATION_BREAK = re.compile(
    r"[.!?;]\s|, (?:but|just|then|instead|rather|please)\b|\n\s*\n|\n\s*(?:[-*+]|\d{1,3}[.)])\s"
)

_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "ly", "s", "e")


def fold(text: str) -> str:
    """Return the words of a text in lower case, joined by single spaces."""
    return " ".join(WORD.findall(text.lower()))


def count_words(text: str) -> int:
    """Return a text's number of words; in scripts without spaces two characters count as one word."""
    unspaced = len(UNSPACED_CHARACTER.findall(text))
    spaced = UNSPACED_CHARACTER.sub(" ", text) if unspaced else text
    return len(WORD.findall(spaced)) + (unspaced + 1) // 2


def stem(word: str) -> str:
    """Return the English stem of a word in lower case, by Snowball."""
    return str(_stemmer().stemWord(word))


@cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")


def stem_by_suffix(word: str) -> str:
    """Return the beginning that a word shares with its inflections.

    The scorer of pages was fitted on these stems, with which words of the text begin; those of Snowball would
    shift its features. Who changes this fits the scorer again.
    """
    if len(word) == 4:
        return word.removesuffix("s")
    fitting = (s for s in _SUFFIXES if len(word) > 4 and word.endswith(s) and len(word) - len(s) >= 3)
    return word.removesuffix(next(fitting, ""))
