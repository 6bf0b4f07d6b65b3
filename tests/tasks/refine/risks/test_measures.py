from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.risks.scan import excerpt, keyword_list, repeated_word


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\n  lines", "two lines"),
        ("<|im_start|>", "‹¦im_start¦›"),
        ("[a](https://b.example)", "(a)(hxxps://b.example)"),
        ("`ls`", "'ls'"),
        ("a\u200bb", "aU+200B b"),
        ("x\U000e0041", "xU+E0041"),
        ("AbCd1" * 20, "AbCd…"),
    ],
)
def test_markup_links_and_what_is_invisible_are_made_plain(text: str, shown: str) -> None:
    assert excerpt(text) == shown


def test_a_key_is_redacted() -> None:
    assert excerpt("use glpat-" + "k9Qw7Zr5Tx3Vb1Nm8Lp2") == "use (redacted:gitlab-token)"


@given(st.text(max_size=300), st.integers(min_value=5, max_value=100))
def test_any_text_becomes_one_short_visible_line(text: str, limit: int) -> None:
    shown = excerpt(text, limit=limit)

    assert len(shown) <= limit
    assert not set("<>[]|`\\*#") & set(shown)
    assert all(unicodedata.category(character) not in {"Cc", "Cf", "Zl", "Zp"} for character in shown)
