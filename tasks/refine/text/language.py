"""The language of a text, from its prose outside code."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from tasks.refine.text.markdown import outside_fences
from tasks.refine.text.words import LETTERS

# The model's time grows with the text; so many characters are enough.
_HEAD_CHARS = 4_000
_MODEL_CHARS = 1_000
MIN_LETTERS = 40
# A text in Latin letters with so large a share of these words is English: of 700 such texts the model called
# every one English too, in a hundred times the time. No other language has them as everyday words.
_ENGLISH_SHARE = 0.08
_LATIN_SHARE = 0.9
_ENGLISH = frozenset((
    "the", "and", "of", "to", "for", "with", "this", "that", "you", "your", "when", "from", "are", "be", "it",
    "or", "not", "if", "by", "is", "use", "on", "as", "an", "all", "can", "will", "any", "each", "must",
    "should", "have", "has", "which", "into", "what", "how", "only", "these", "before", "after",
))  # fmt: skip
_CODE = re.compile(r"`[^`\n]*`|https?://\S+|</?[A-Za-z][^<>\n]*>")
# The ISO 639-1 codes that cover varieties the model knows by codes of their own.
_MACRO = {
    "yue": "zh", "wuu": "zh", "nb": "no", "nn": "no", "ary": "ar", "arz": "ar", "uzs": "uz", "sdh": "ku"
}  # fmt: skip
_NO_LANGUAGE = "zxx"


class Language(NamedTuple):
    """An ISO 639-1 code (None: undetermined), its confidence (0 to 1), and the letters of distinct words."""

    code: str | None
    confidence: float
    letters: int


@functools.cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _prose_words(body: str) -> list[str]:
    prose = "\n".join(outside_fences(body[:_HEAD_CHARS]))
    return LETTERS.findall(_CODE.sub(" ", prose).lower())


def language_of(body: str, description: str, *, min_confidence: float) -> Language:
    """Return the language of a document's first 4,000 characters, without code, URLs and tags.

    If the body has fewer than 40 letters, the description is added. English is told by its commonest words,
    any other language by the model of langid.py (Lui and Baldwin, ACL 2012). The language is undetermined if
    there are fewer than 40 letters, it has no code of two letters, or the model's confidence is below
    `min_confidence` (0 to 1).
    """
    words = _prose_words(body)
    if _letters(words) < MIN_LETTERS:
        words += LETTERS.findall(description.lower())
    letters = _letters(words)
    if letters < MIN_LETTERS:
        return Language(None, 0.0, letters)
    if _is_english(words):
        return Language("en", 1.0, letters)
    label, confidence = _identifier().classify(" ".join(dict.fromkeys(words))[:_MODEL_CHARS])
    confidence = 0.0 if label == _NO_LANGUAGE else float(confidence)
    code = _MACRO.get(label, label)
    known = len(code) == 2 and confidence >= min_confidence
    return Language(code if known else None, confidence, letters)


def _is_english(words: list[str]) -> bool:
    if sum(word in _ENGLISH for word in words) < _ENGLISH_SHARE * len(words):
        return False
    joined = "".join(words)
    return len(joined.encode("ascii", "ignore")) >= _LATIN_SHARE * len(joined)


def _letters(words: list[str]) -> int:
    """Return the number of letters of the distinct words: a repeated word tells nothing new."""
    return sum(map(len, set(words)))
