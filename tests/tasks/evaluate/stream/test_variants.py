"""The variants of SGDR's tables 2 to 4."""

from __future__ import annotations

from tasks.evaluate.stream.variants import ALPHAS, RELEVANCE_WEIGHTS, variants
from tasks.evaluate.stream.walk import Stream
from tasks.retrieve.suggest.methods import METHODS
from tests.support.induce.runs import mooring
from tests.support.models.word_models import WordEncoder


def test_each_row_of_the_tables_is_a_method_and_none_is_measured_under_two_names() -> None:
    assert {*ALPHAS.values(), *RELEVANCE_WEIGHTS.values()} == set(variants())
    assert {"sgdr", "task", "state"} == set(variants()) & set(METHODS)


def test_each_variant_can_be_walked() -> None:
    runs = [mooring("h1", "a"), mooring("h2", "b", "Auk", "C3", 55)]

    found = list(Stream(WordEncoder().encode).walk(runs, variants()))

    for name in variants():
        assert [one.usable for named, one in found if named == name] == [0, 0, 0, 0, 3, 2, 0, 0]
