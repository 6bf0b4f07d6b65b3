"""Decomposers of methods: told steps, and drafts without one of the things that the local one does."""

from __future__ import annotations

from tasks.evaluate.compose.decomposers import with_own_work, without_references
from tasks.retrieve.compose.drafts import Draft, DraftStep, LeftOut

DRAFT = Draft(
    (DraftStep("Fetch it (the tide table)", ((20, 28),), "Fetch it"), DraftStep("mail Ida", ((50, 58),))),
    (LeftOut("choose the calmest day", (30, 48), "own-work"), LeftOut("The tide is low", (0, 15), "context")),
)


def test_without_references_a_step_says_what_the_task_says() -> None:
    assert [step.text for step in without_references(DRAFT).steps] == ["Fetch it", "mail Ida"]


def test_own_work_becomes_a_step_where_it_is_told() -> None:
    changed = with_own_work(DRAFT)

    assert [step.text for step in changed.steps] == [
        "Fetch it (the tide table)", "choose the calmest day", "mail Ida",
    ]  # fmt: skip
    assert [part.reason for part in changed.left_out] == ["context"]
