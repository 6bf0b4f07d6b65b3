"""References: a step that says "it" tells what it means; one that does not stays as it is."""

from __future__ import annotations

import pytest

from tasks.retrieve.compose.decompose.references import filled
from tasks.retrieve.compose.decompose.steps import Span


def spans(task: str, *steps: str) -> list[list[Span]]:
    return [[(task.index(step), task.index(step) + len(step))] for step in steps]


@pytest.mark.parametrize(
    ("task", "steps", "number", "wanted"),
    [
        (
            "There is a recipe on the kitchen wiki. Fetch it.", ("Fetch it",), 0,
            "Fetch it (There is a recipe on the kitchen wiki)",
        ),
        (
            "Photograph the cracked jar on the shelf, and put it into our shop.",
            ("Photograph the cracked jar on the shelf", "put it into our shop"), 1,
            "put it into our shop (the cracked jar)",
        ),
        ("Bake bread. Brew tea.", ("Bake bread", "Brew tea"), 1, "Brew tea"),
        ("Fetch it", ("Fetch it",), 0, "Fetch it"),
    ],
)  # fmt: skip
def test_what_a_step_refers_to_stands_in_brackets(
    task: str, steps: tuple[str, ...], number: int, wanted: str
) -> None:
    assert filled(task, spans(task, *steps), number) == wanted
