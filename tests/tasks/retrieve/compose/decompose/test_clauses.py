"""Clauses of a request: nothing of it is lost, and quoted text stays in one piece."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.decompose.clauses import JOINS, clauses

WORDS = [
    "weigh", "flour", "Oven", "and", "then", "if", "it", "rises", "as soon as", "2.5", "Mr. Rye", "お茶",
    "'a, b'",
]  # fmt: skip
SIGNS = [" ", ", ", ". ", "; ", ": ", " and ", " - ", " (", ") ", "\n", "? "]


def texts(request: str) -> list[str]:
    return [clause.text for clause in clauses(request)]


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SIGNS)), max_size=12))
def test_clauses_are_parts_of_the_request_in_order(parts: list[tuple[str, str]]) -> None:
    request = "".join(word + sign for word, sign in parts)
    found = clauses(request)

    assert all(request[c.start : c.end] == c.text and c.join in JOINS for c in found)
    assert all(one.end <= other.start for one, other in pairwise(found))


@given(st.text(max_size=200))
def test_any_text_is_cut(text: str) -> None:
    assert all(text[c.start : c.end] == c.text for c in clauses(text))


@given(st.lists(st.sampled_from(["weigh", "flour", "rye", "oven"]), min_size=1, max_size=9))
def test_no_word_but_joining_ones_is_lost(words: list[str]) -> None:
    request = ", ".join(words) + "."

    assert re.findall(r"\w+", " ".join(texts(request))) == words


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("Weigh the flour, then bake it.", ["Weigh the flour", "bake it"]),
        ("Ring me as soon as the dough is ready", ["Ring me", "as soon as the dough is ready"]),
        ("Post 'Rye, spelt and oat' today", ["Post 'Rye, spelt and oat' today"]),
        ("Ask Mr. Rye for 2.5 kg; pay him", ["Ask Mr. Rye for 2.5 kg", "pay him"]),
        ("mill -> oven", ["mill", "oven"]),
        ("粉を量る。パンを焼く。", ["粉を量る", "パンを焼く"]),
        ("", []),
        (" ... ?!", []),
    ],
)
def test_requests_are_cut_where_a_step_may_begin(request_: str, expected: list[str]) -> None:
    assert texts(request_) == expected


def test_words_between_a_sign_and_a_clause_are_in_neither() -> None:
    assert [(c.join, c.text) for c in clauses("Mill it, and then bake it")] == [
        ("start", "Mill it"),
        ("comma", "bake it"),
    ]
