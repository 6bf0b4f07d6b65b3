from __future__ import annotations

import pytest

from tasks.refine.risks.measures import keyword_list, repeated_word


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("pdf, word, csv", 3),
        ("Reads pdf files that a scanner made, and word", 0),
        ("pdf, word, csv, and some longer words here", 3),
        ("", 0),
    ],
)
def test_a_list_of_search_words_is_counted_and_a_sentence_is_not(text: str, items: int) -> None:
    assert keyword_list(text) == items


@pytest.mark.parametrize(
    ("text", "often"),
    [
        ("Invoice maker, invoice reader, invoice sender", 3),
        (
            "invoice "
            + "one two three four five six seven eight nine ten eleven twelve thirteen fourteen " * 2,
            0,
        ),
        ("when when when user user", 0),
        ("", 0),
    ],
)
def test_the_commonest_word_counts_where_it_is_one_in_eight(text: str, often: int) -> None:
    assert repeated_word(text) == often
