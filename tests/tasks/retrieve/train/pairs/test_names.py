from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.train.pairs.names import Names

BREAD = Names(["rye-bread", "crumb"])
WORDS = st.sampled_from(
    ["rye", "bread", "crumb", "use", "to", "with", "plan", "a", "loaf", "Rye-Bread", "/crumb", ","]
)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("Plan a bake for Sunday", "Plan a bake for Sunday"),
        ("Bread of rye flour", "Bread of rye flour"),
        ("Use Rye Bread to plan a bake", "Plan a bake"),
        ("Plan a bake with the rye_bread skill", "Plan a bake"),
        ("/crumb: plan a bake", "Plan a bake"),
        ("Slice rye bread thinly", None),
        ("Fix my RyeBread recipe", None),
    ],
)
def test_a_request_loses_the_name_or_is_lost(query: str, left: str | None) -> None:
    assert BREAD.out_of_request(query) == left


def test_a_name_leaves_a_text_only_for_a_request_with_all_its_words() -> None:
    text = "The rye bread rises. Rye grows."

    assert BREAD.out_of_text(text, "Bake bread out of rye") == "The  rises. Rye grows."
    assert BREAD.out_of_text(text, "Bake bread out of spelt") == text


@given(st.lists(WORDS).map(" ".join))
def test_no_request_holds_a_name(query: str) -> None:
    left = BREAD.out_of_request(query)

    assert left is None or not BREAD.within(left)


@pytest.mark.parametrize("text", ["rye bread", "Rye-Bread", "RYEBREAD!", "/rye_bread", "a crumb"])
def test_a_name_is_known_in_any_spelling(text: str) -> None:
    assert BREAD.within(text)


@pytest.mark.parametrize("text", ["gofrye bread", "rye breads", "a crumble", "breadcrumb"])
def test_a_part_of_a_longer_word_is_no_name(text: str) -> None:
    assert not BREAD.within(text)


def test_the_longest_of_several_names_is_taken_out() -> None:
    assert Names(["rye", "rye-bread"]).out_of_text("The rye bread rises.", "Bake rye bread") == "The  rises."


def test_no_name_is_within_nothing() -> None:
    assert not Names([""]).within("anything")
