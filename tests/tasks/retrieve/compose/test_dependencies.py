"""Dependencies: fan-in, independence, an order told backwards, and the conditions that steps tell."""

from __future__ import annotations

import pytest

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.steps import DraftStep
from tasks.retrieve.compose.decompose.task_model import packaged_model
from tasks.retrieve.compose.dependencies import condition_of, ordered


def draft_of(task: str, *steps: str, in_order: bool = False) -> Draft:
    made = (DraftStep(step, ((task.index(step), task.index(step) + len(step)),)) for step in steps)
    return Draft(tuple(made), in_order=in_order)


def needs(task: str, draft: Draft) -> set[tuple[int, int]]:
    return {(d.before, d.after) for d in ordered(task, draft, packaged_model()).dependencies}


def test_what_collects_two_results_needs_both() -> None:
    task = "Look up the tide for Friday, find the ferry times, and put both on one page in the club's wiki."
    steps = ("Look up the tide for Friday", "find the ferry times", "put both on one page in the club's wiki")

    assert needs(task, draft_of(task, *steps)) == {(0, 2), (1, 2)}


def test_what_is_told_first_may_be_done_last() -> None:
    task = "Ping me in the team chat as soon as the backup in the vault has finished."
    steps = ("Ping me in the team chat", "as soon as the backup in the vault has finished")

    assert needs(task, draft_of(task, *steps)) == {(1, 0)}


def test_steps_in_an_order_need_no_later_one() -> None:
    task = "Ping me in the team chat as soon as the backup in the vault has finished."
    steps = ("as soon as the backup in the vault has finished", "Ping me in the team chat")

    assert needs(task, draft_of(task, *steps, in_order=True)) == {(0, 1)}


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("if it rains, move the picnic", "if it rains"),
        ("tell Ida as soon as the oven is hot", "as soon as the oven is hot"),
        ("once the dough has risen, bake it", "once the dough has risen"),
        ("post it at once and tell Ida", None),
        ("water the plants once a week", None),
        ("bake the bread", None),
    ],
)
def test_a_condition_is_what_a_step_waits_for(text: str, condition: str | None) -> None:
    assert condition_of(text) == condition
