from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging.terms import bm25, index_words, rarity, term_counts, words_of


def found(text: str, term: str) -> int:
    return int(term_counts(index_words([text]), [term])[0, 0])


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Plant a plant, planting plants", 4),
        ("transplant explanted", 0),
        ("plantationally", 0),
        ("autoPlant re_plant x2plant", 3),
        ("PLANT IT", 1),
    ],
)
def test_a_stem_matches_where_words_begin_with_it_and_end_soon(text: str, times: int) -> None:
    assert found(text, "plant") == times


def test_a_short_term_stands_alone_or_in_the_plural() -> None:
    assert found("run runs runtime rerun", "run") == 2


def test_a_number_stands_alone() -> None:
    assert found("port 80 and 8080 and v80", "80") == 2


def test_names_of_code_and_unspaced_scripts_are_taken_apart() -> None:
    assert words_of("setOvenHeat HTTPServer max_v2 été") == [
        "set", "oven", "heat", "http", "server", "max", "v", "2", "été",
    ]  # fmt: skip
    assert words_of("緑茶葉") == ["緑茶", "茶葉"]
    assert found("緑茶葉です", "茶葉") == 1


@given(st.lists(st.text(max_size=30), max_size=4), st.text(max_size=5))
def test_no_word_is_lost_or_counted_twice(texts: list[str], term: str) -> None:
    index = index_words(texts)
    counts = term_counts(index, sorted(set(index.words)))

    assert len(index.places) == sum(len(words_of(text)) for text in texts)
    assert counts.shape == (len(index.words), len(texts))
    assert (counts.sum(axis=1) >= 1).all()
    assert term_counts(index, [term]).sum() <= len(index.places)


def test_counts_are_of_the_text_that_holds_the_word() -> None:
    index = index_words(["Mites here.", "No mites, mites.", ""])

    assert term_counts(index, ["mite", "mites", "absent"]).tolist() == [[1, 2, 0], [1, 2, 0], [0, 0, 0]]


def test_rare_terms_and_short_texts_weigh_more() -> None:
    counts = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])

    weights = rarity(counts)
    scores = bm25(counts, np.array([5.0, 5.0, 50.0]), weights, length_share=0.75)

    assert weights[1] > weights[0] > 0
    assert scores[0, 1] > scores[0, 2] > scores[1, 2] == 0
