"""Feedback: of drafts that are about as likely, the one whose steps are served is taken."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.feedback import FEATURES, chosen_count, draft_features
from tasks.retrieve.compose.decompose.fitted import fitted
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep
from tests.support.roots.skill_root import SkillRoot


@pytest.fixture
def matcher(served_bakery: SkillRoot) -> Matcher:
    with served_bakery.ask().version() as now:
        router = now.searcher().router
    return Matcher(router)


def draft(certainty: float, *texts: str) -> Draft:
    return Draft(tuple(DraftStep(text, ((k, k + 1),)) for k, text in enumerate(texts)), (), certainty)


def test_features_tell_steps_that_one_row_serves_from_those_that_two_serve(matcher: Matcher) -> None:
    hints = matcher.hints(draft(1.0, "bake wheat bread", "repair the puncture of a bicycle").steps, 4)
    apart = draft_features(draft(0.5, "bake wheat bread", "repair the puncture of a bicycle"), hints, matcher)
    same = draft_features(draft(0.5, "bake wheat bread", "bread in the oven"), hints, matcher)

    assert apart[FEATURES.index("same")] == 0
    assert same[FEATURES.index("same")] == 1
    assert apart[FEATURES.index("likely")] == pytest.approx(np.log(0.5))


def test_a_draft_that_is_far_more_likely_is_taken_whatever_the_hints(matcher: Matcher) -> None:
    hints = matcher.hints(draft(1.0, "bake wheat bread").steps, 3)
    drafts = {1: draft(0.97, "bake wheat bread"), 2: draft(0.03, "bake wheat", "bread")}

    assert chosen_count(drafts, hints, matcher) == 1


def test_without_hints_the_likeliest_is_taken(matcher: Matcher) -> None:
    assert chosen_count({1: draft(0.4, "a"), 2: draft(0.6, "a", "b")}, (), matcher) == 2


def test_hints_speak_for_two_steps_where_two_rows_serve_them_more_than_where_one_does(
    matcher: Matcher,
) -> None:
    hints = matcher.hints(
        draft(1.0, "bake wheat bread with yeast", "repair the puncture of a bicycle").steps, 4
    )
    weights = np.array([fitted()["feedback"][name] for name in FEATURES])

    def spoken(one: Draft, two: Draft) -> float:
        """Return how much more the hints speak for the draft of two steps."""
        return float((draft_features(two, hints, matcher) - draft_features(one, hints, matcher)) @ weights)

    by_one_row = spoken(
        draft(0.5, "bake wheat bread with yeast in the oven"),
        draft(0.5, "wheat bread with yeast", "bake bread in the oven"),
    )
    by_two_rows = spoken(
        draft(0.5, "bake wheat bread with yeast, repair the puncture of a bicycle"),
        draft(0.5, "bake wheat bread with yeast", "repair the puncture of a bicycle"),
    )

    assert by_one_row < 0
    assert by_two_rows > by_one_row + 0.5
