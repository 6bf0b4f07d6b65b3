"""Steps of a draft: what stands between them."""

from __future__ import annotations

from tasks.retrieve.compose.decompose.steps import leads

TASK = "There is a wheat loaf to make. Bake it, and repair the bicycle chain."


def test_what_leads_to_a_step_stands_right_before_it_and_in_no_other() -> None:
    assert leads(TASK, [((31, 38),), ((44, 68),)]) == ["There is a wheat loaf to make. ", ", and "]


def test_nothing_leads_to_a_step_within_another() -> None:
    assert leads(TASK, [((0, 29), (44, 68)), ((31, 38),)]) == ["", ""]
