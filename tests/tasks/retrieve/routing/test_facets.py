from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.routing.facets import about_tokens, facets, readable


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("Bake six loaves. Then feed the bees!", ["Bake six loaves.", "Then feed the bees!"]),
        ("Bake:\n- rye bread loaves\n- buns", ["- rye bread loaves"]),
        ("One two three. One two three.", ["One two three."]),
        ("bees", []),
        ("まず湯を沸かす。次に茶葉を量る。", ["まず湯を沸かす。", "次に茶葉を量る。"]),
    ],
)
def test_a_task_is_cut_into(task: str, found: list[str]) -> None:
    assert facets(task) == found


def test_a_long_line_is_cut_between_words() -> None:
    cut = facets("knead the dough " * 100)
    assert all(len(part) <= 400 and not part.endswith("doug") for part in cut)


def test_a_line_without_spaces_is_cut_all_the_same() -> None:
    assert max(map(len, facets("é" * 5000))) <= 400


@given(st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=8, unique=True), st.floats(1, 100))
def test_what_is_read_is_within_the_budget_and_in_order(pieces: list[str], most: float) -> None:
    read = readable(pieces, most)
    assert len(read) == 1 or sum(map(about_tokens, read)) <= most
    assert read == [piece for piece in pieces if piece in read] != []


def test_the_first_pieces_are_read_and_a_longer_one_passed_over() -> None:
    assert readable(["knead the dough", "rest it " * 20, "bake it"], 12) == ["knead the dough", "bake it"]


def test_prose_is_read_before_rows_of_numbers_code_and_rules() -> None:
    prose = ["Bake six loaves by noon.", "まず湯を沸かす。"]
    task = ["0.1, 0.3, 3.0, , 12", prose[0], "━" * 8, "f(x[0]) -> {1: 2}", prose[1]]
    assert readable(task, sum(map(about_tokens, prose)) + 1) == prose
    assert readable(["1 2 3", "4 5 6"], 3) == ["1 2 3"]


def test_what_is_left_goes_to_the_rest() -> None:
    needs = ["Bump node 18.19.1 -> 20.11.0", "Then bake six loaves."]
    assert readable(needs, 100) == needs
