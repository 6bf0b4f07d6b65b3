from __future__ import annotations

import re

import pytest

from tasks.refine.duplicates.shingles import SHINGLE_WORDS, shingle_sets
from tasks.refine.text.words import UNSPACED_CLASS, count_words
from tasks.retrieve.paging.terms import words_of
from tasks.retrieve.routing.postings import spelled_terms

UNSPACED = {
    "Han": "揉面团十分钟",
    "rare Han": "𠀀𠀁𠀂𠀃𠀄𠀅",
    "kana": "パンをやくとき",
    "half-width kana": "ﾃﾆｦﾔｸﾓ",
}
SPACED = {"Latin": "sourdough", "Hangul": "반죽하세요", "Greek": "ζυμώνουμε", "Cyrillic": "замешивать"}


@pytest.mark.parametrize("word", UNSPACED.values(), ids=UNSPACED)
def test_a_run_without_spaces_is_cut_wherever_text_is_cut(word: str) -> None:
    pairs = [word[i : i + 2] for i in range(len(word) - 1)]

    assert list(spelled_terms(word)) == words_of(word) == pairs
    assert count_words(word) == (len(word) + 1) // 2
    assert next(shingle_sets([word])).size == len(word) - SHINGLE_WORDS + 1


@pytest.mark.parametrize("word", SPACED.values(), ids=SPACED)
def test_a_word_between_spaces_stays_whole_wherever_text_is_cut(word: str) -> None:
    assert len(list(spelled_terms(word))) == len(words_of(word)) == count_words(word) == 1
    assert next(shingle_sets([word])).size == 0


@pytest.mark.parametrize("character", "ขລကក្នあ漢ｱ")
def test_thai_lao_myanmar_khmer_and_japanese_are_written_without_spaces(character: str) -> None:
    assert re.fullmatch(UNSPACED_CLASS, character)
