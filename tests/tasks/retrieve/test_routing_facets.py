from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.routing_facets import about_tokens, facets, telling


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
def test_what_is_chosen_is_within_the_budget_and_in_order(pieces: list[str], most: float) -> None:
    chosen = telling(pieces, lambda piece: float(len(piece)), most)
    assert len(chosen) == 1 or sum(map(about_tokens, chosen)) <= most
    assert chosen == [piece for piece in pieces if piece in chosen] != []


def test_what_says_most_is_chosen() -> None:
    weights = {"aaaa": 1.0, "bbbb": 3.0, "cccc": 2.0}
    assert telling(list(weights), weights.__getitem__, 6) == ["bbbb", "cccc"]
