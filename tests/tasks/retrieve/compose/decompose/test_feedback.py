"""Feedback: of drafts that are about as likely, the one whose steps are served is taken."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.feedback import FEATURES, chosen_count, draft_features
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep
from tests.support.roots.skill_root import SkillRoot


@pytest.fixture
def matcher(served_bakery: SkillRoot) -> Matcher:
    _, router = served_bakery.ask().read(lambda now: now.searcher().router)
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


def test_what_one_row_serves_is_taken_together_and_what_two_serve_is_not(matcher: Matcher) -> None:
    hints = matcher.hints(
        draft(1.0, "bake wheat bread with yeast", "repair the puncture of a bicycle").steps, 4
    )
    one_row = {
        1: draft(0.48, "bake wheat bread with yeast in the oven"),
        2: draft(0.52, "wheat bread with yeast", "bake bread in the oven"),
    }
    two_rows = {
        1: draft(0.52, "bake wheat bread with yeast, repair the puncture of a bicycle"),
        2: draft(0.48, "bake wheat bread with yeast", "repair the puncture of a bicycle"),
    }

    assert chosen_count(one_row, hints, matcher) == 1
    assert chosen_count(two_rows, hints, matcher) == 2
