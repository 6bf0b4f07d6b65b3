"""The local decomposer: steps where a task says them, limits of their number, and scripts it cannot read."""

from __future__ import annotations

import pytest

from tasks.retrieve.compose.drafts import Draft, Span
from tasks.retrieve.compose.local import LocalDecomposer, filled
from tasks.retrieve.compose.ranking import Matcher
from tests.support.roots.skill_root import SkillRoot

TASK = "My shop is new. Count the open orders in Shopify, write them to a Google sheet, and mail it to Ida."


@pytest.fixture(scope="module")
def matcher(served_bakery: SkillRoot) -> Matcher:
    with served_bakery.ask().version() as now:
        return Matcher(now.searcher())


def said(task: str, draft: Draft) -> list[str]:
    return [" … ".join(task[a:b] for a, b in step.spans) for step in draft.steps]


def test_a_task_is_cut_where_it_says_its_steps(matcher: Matcher) -> None:
    draft = LocalDecomposer().decompose(TASK, None, matcher)
    assert said(TASK, draft) == [
        "Count the open orders in Shopify", "write them to a Google sheet", "mail it to Ida",
    ]  # fmt: skip
    assert draft.steps[1].text.startswith("write them to a Google sheet (")
    assert 0 < draft.certainty <= 1


def test_the_word_that_tells_a_condition_is_part_of_its_step(matcher: Matcher) -> None:
    task = "If it rains on Saturday, move the picnic in my calendar and tell Ida by mail."
    steps = LocalDecomposer().decompose(task, None, matcher).steps
    assert said(task, Draft(steps))[0].startswith("If it rains")


@pytest.mark.parametrize("most", [1, 2])
def test_steps_beyond_the_limit_are_left_out_as_such(matcher: Matcher, most: int) -> None:
    draft = LocalDecomposer(most=most).decompose(TASK, None, matcher)
    assert len(draft.steps) <= most
    assert "beyond-max-steps" in {part.reason for part in draft.left_out}


@pytest.mark.parametrize("exactly", [1, 2, 4])
def test_a_known_number_of_steps_is_kept_to(matcher: Matcher, exactly: int) -> None:
    assert len(LocalDecomposer(exactly=exactly).decompose(TASK, None, matcher).steps) == exactly


def test_another_script_is_cut_into_sentences_without_certainty(matcher: Matcher) -> None:
    task = "パンを焼いて。お茶をいれる。GitHubのissueを作成し。"
    draft = LocalDecomposer().decompose(task, None, matcher)
    assert said(task, draft) == ["パンを焼いて", "お茶をいれる", "GitHubのissueを作成し"]
    assert draft.certainty == 0
    assert len(LocalDecomposer(exactly=2).decompose(task, None, matcher).steps) == 2


@pytest.mark.parametrize("task", ["thanks!", "Good morning, how are you?", "?!", "'\"`"])
def test_what_asks_for_nothing_has_no_steps(matcher: Matcher, task: str) -> None:
    assert LocalDecomposer().decompose(task, None, matcher).steps == ()


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
