from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging_terms import bm25, lowered, occurrences, rarity, term_counts


def found(body: str, term: str) -> list[int]:
    return list(occurrences(body, lowered(body), term))


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ("Plant a plant, planting plants", [0, 8, 15, 24]),
        ("transplant explanted", []),
        ("plantationally", []),
        ("autoPlant re_plant x2plant", [4, 13, 21]),
        ("PLANT IT", [0]),
    ],
)
def test_a_stem_matches_where_words_begin_with_it_and_end_soon(body: str, places: list[int]) -> None:
    assert found(body, "plant") == places


def test_a_short_term_stands_alone_or_in_the_plural() -> None:
    assert found("run runs runtime rerun", "run") == [0, 4]


def test_a_term_of_another_script_matches_anywhere() -> None:
    assert found("緑茶葉です", "茶葉") == [1]


@given(st.text())
def test_lowering_keeps_every_character_in_its_place(body: str) -> None:
    assert len(lowered(body)) == len(body)


def test_counts_are_of_the_span_that_holds_the_word() -> None:
    body = "mites here. No mites, mites. Elsewhere mites"
    starts, ends = np.array([0, 12]), np.array([11, 28])

    counts = term_counts(body, body.lower(), ["mite", "mites", "absent"], starts, ends)

    assert counts.tolist() == [[1, 1, 0], [2, 2, 0]]


def test_rare_terms_and_short_rows_weigh_more() -> None:
    counts = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])

    weights = rarity(counts)
    scores = bm25(counts, np.array([5.0, 5.0, 50.0]), weights, length_share=0.75)

    assert weights[1] > weights[0] > 0
    assert scores[1, 0] > scores[2, 0] > scores[2, 1] == 0
