from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.routing.terms import spelled_terms, term_counts, term_hash, term_sequence


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("Loaves", ["loav"]),
        ("kneading", ["knead"]),
        ("useEffect", ["useeffect", "use", "effect"]),
        ("HTTPServer2", ["httpserver2", "http", "server"]),
        ("JSON", ["json"]),
        ("brötchen", ["brötchen"]),
        ("Brötchen", ["brötchen"]),
        ("抹茶碗", ["抹茶", "茶碗"]),
        ("茶", ["茶"]),
        ("x" * 41, []),
    ],
)
def test_a_word_is_looked_up_by(word: str, terms: list[str]) -> None:
    assert list(spelled_terms(word)) == terms


def test_separators_of_identifiers_part_words() -> None:
    assert term_counts("oven_temp proof-time") == term_counts("oven temp proof time")


def test_terms_are_counted_and_stand_in_order() -> None:
    knead, dough = term_hash("knead"), term_hash("dough")
    assert term_counts("Knead dough; kneading doughs, dough") == {knead: 2, dough: 3}
    assert term_sequence("Knead dough; kneading") == [knead, dough, knead]


@given(st.text(max_size=200))
def test_counts_are_those_of_the_sequence(text: str) -> None:
    sequence = term_sequence(text)
    assert term_counts(text) == {term: sequence.count(term) for term in sequence}


def test_a_hash_is_the_same_in_every_process() -> None:
    asked = "from tasks.retrieve.routing.terms import term_hash; print(term_hash('sourdough'))"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert int(said) == term_hash("sourdough")
