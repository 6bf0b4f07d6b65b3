"""The variants of SGDR's tables 2 to 4."""

from __future__ import annotations

from tasks.evaluate.stream.variants import ALPHAS, RELEVANCE_WEIGHTS, alpha_name, mmr_name, variants
from tasks.evaluate.stream.walk import Stream
from tests.support.induction import mooring
from tests.support.models.word_models import WordEncoder


def test_each_row_of_the_tables_is_a_method_with_a_name_of_its_own() -> None:
    assert list(variants()) == [
        "sgdr alpha 0", "sgdr alpha 0.3", "sgdr alpha 0.5", "sgdr alpha 0.7", "sgdr alpha 1",
        "sgdr without MMR", "sgdr MMR 0.5", "sgdr MMR 0.7", "sgdr MMR 0.9",
    ]  # fmt: skip
    assert {*map(alpha_name, ALPHAS), *map(mmr_name, RELEVANCE_WEIGHTS)} == set(variants())


def test_each_variant_can_be_walked() -> None:
    runs = [mooring("h1", "a"), mooring("h2", "b", "Auk", "C3", 55)]

    found = list(Stream(WordEncoder().encode).walk(runs, variants()))

    for name in variants():
        assert [one.usable for named, one in found if named == name] == [0, 0, 0, 0, 3, 2, 0, 0]
