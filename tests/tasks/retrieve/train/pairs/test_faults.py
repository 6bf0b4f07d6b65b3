from __future__ import annotations

import pytest

from tasks.retrieve.train.pairs.faults import WORDS, fault_of


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("Plan a bake for Sunday", None),
        ("Set up CI/CD for my bakery's site", None),
        ("Don't burn it", None),
        ("Bake bread", "too_short"),
        ("Bake rye/oat-bread", "too_short"),
        (" ".join(["flour"] * (WORDS[1] + 1)), "too_long"),
        ("Backe mir bitte einen Laib für Sonntag", "not_english"),
        ("Haz una hogaza para el domingo", "not_english"),
        ("请帮我烤面包 for Sunday please", "not_english"),
        ("Bake a loaf for [name] today", "placeholder"),
        ("Bake a loaf of rye, salt ... at noon", "placeholder"),
        ("Compare this loaf with X", "placeholder"),
        ("Bake the loaf with --steam on", "code"),
        ("Read https://bread.example today", "code"),
        ("Copy loaves/rye/dark to my shelf", "code"),
        ("Read recipes/rye.md before baking", "code"),
        ("Ask the user for the flour", "third_person"),
        ("Tell me what this skill bakes", "about_the_skill"),
        ("Hand the dough to a subagent", "about_the_skill"),
        ("Bake a loaf with", "broken"),
        ("Bake a loaf (dark", "broken"),
        ("Bake a dark loaf, whittling spoons of oak", "broken"),
        ("Bake a loaf is required for the feast", "broken"),
        ("Bake a dark loaf, including its crust", None),
        ("Help me with bread baking tasks or workflows", "about_the_skill"),
        ("bread, dark rye, stone oven", "keywords"),
        ("Smoke fills my whole kitchen, my hall, my attic", None),
        ("Build ovens, chimneys, tiled stoves", None),
        ("Build ovens, rye, stove, crumb, baking, flour", "keywords"),
    ],
)
def test_a_text_that_no_person_asks_has_a_fault(query: str, fault: str | None) -> None:
    assert fault_of(query) == fault


@pytest.mark.parametrize("count", WORDS)
def test_the_least_and_the_most_words_are_allowed(count: int) -> None:
    assert fault_of(" ".join(["flour"] * count)) is None
