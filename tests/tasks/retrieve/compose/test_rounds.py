"""Rounds of drafts: when they end, and which number of steps the hinted rows speak for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tasks.retrieve.compose.drafts import Draft, DraftStep
from tasks.retrieve.compose.ranking import Matcher, fitted
from tasks.retrieve.compose.rounds import FEEDBACK_FEATURES, chosen_count, decompose, draft_features, jaccard
from tests.support.roots.skill_root import SkillRoot


class Written:
    """A decomposer whose drafts are written down; the last one stays."""

    name = "written"

    def __init__(self, *drafts: Sequence[str]) -> None:
        self._drafts, self.asked = list(drafts), list[Sequence[int] | None]()

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:  # noqa: ARG002
        self.asked.append(hints)
        texts = self._drafts[min(len(self.asked), len(self._drafts)) - 1]
        return Draft(tuple(DraftStep(text, ((0, 1),)) for text in texts))


@pytest.fixture
def matcher(served_bakery: SkillRoot) -> Matcher:
    with served_bakery.ask().version() as now:
        return Matcher(now.searcher())


def test_the_first_round_sees_no_hints_and_the_next_the_best_rows(matcher: Matcher) -> None:
    written = Written(["bake bread"], ["bake bread", "brew tea"])
    found = decompose("bread and tea", written, matcher, rounds=1, hints=2)
    assert written.asked == [None, matcher.hints((DraftStep("bake bread", ((0, 1),)),), 2)]
    assert [len(r.steps) for r in found.rounds] == [1, 2]
    assert found.rounds[0].jaccard is None


def test_hints_that_agree_end_the_rounds(matcher: Matcher) -> None:
    written = Written(["bake bread"], ["bake some bread"], ["keep bees"])
    found = decompose("bread", written, matcher, rounds=5, hints=3)
    assert (len(written.asked), found.converged) == (2, True)
    assert found.draft.steps[0].text == "bake some bread"


def test_a_draft_that_stays_ends_the_rounds(matcher: Matcher) -> None:
    written = Written(["bake bread"])
    found = decompose("bread", written, matcher, rounds=5)
    assert (len(written.asked), len(found.rounds), found.converged) == (2, 2, True)
    assert found.rounds[1].jaccard == 1


def test_an_empty_draft_is_not_taken(matcher: Matcher) -> None:
    found = decompose("bread", Written(["bake bread"], []), matcher, rounds=3)
    assert [step.text for step in found.draft.steps] == ["bake bread"]


def test_a_circle_ends(matcher: Matcher) -> None:
    written = Written(["bake bread"], ["keep bees"], ["bake bread"], ["keep bees"])
    found = decompose("bread or bees", written, matcher, rounds=9, hints=1)
    assert len(written.asked) == 3
    assert [step.text for step in found.draft.steps] == ["keep bees"]


def test_jaccard_is_the_share_of_the_union() -> None:
    assert (jaccard({1, 2}, {2, 3}), jaccard(set(), set()), jaccard({1}, set())) == (1 / 3, 1.0, 0.0)


def draft(certainty: float, *texts: str) -> Draft:
    return Draft(tuple(DraftStep(text, ((k, k + 1),)) for k, text in enumerate(texts)), (), certainty)


def test_features_tell_steps_that_one_row_serves_from_those_that_two_serve(matcher: Matcher) -> None:
    hints = matcher.hints(draft(1.0, "bake wheat bread", "repair the puncture of a bicycle").steps, 4)
    apart = draft_features(draft(0.5, "bake wheat bread", "repair the puncture of a bicycle"), hints, matcher)
    same = draft_features(draft(0.5, "bake wheat bread", "bread in the oven"), hints, matcher)
    assert apart[FEEDBACK_FEATURES.index("same")] == 0
    assert same[FEEDBACK_FEATURES.index("same")] == 1
    assert apart[FEEDBACK_FEATURES.index("likely")] == pytest.approx(np.log(0.5))


def test_a_draft_that_is_far_more_likely_is_taken_whatever_the_hints(matcher: Matcher) -> None:
    hints = matcher.hints(draft(1.0, "bake wheat bread").steps, 3)
    drafts = {1: draft(0.97, "bake wheat bread"), 2: draft(0.03, "bake wheat", "bread")}
    assert chosen_count(drafts, hints, matcher) == 1


@pytest.mark.parametrize(
    ("task", "right"),
    [("For the Bread: a Tea by noon.", 2), ("For the bread: a tea by noon.", 1)],  # no capitals tell nothing
)
def test_a_draft_of_fewer_steps_than_the_task_names_services_is_spoken_against(
    served_bakery: SkillRoot, task: str, right: int
) -> None:
    with served_bakery.ask().version() as now:
        matcher = Matcher(now.searcher(), None, task)
    drafts = {1: draft(0.7, "the bread: a tea by noon"), 2: draft(0.2, "the bread", "a tea by noon")}
    hints = matcher.hints(drafts[2].steps, 4)
    beyond = [draft_features(drafts[n], hints, matcher)[FEEDBACK_FEATURES.index("beyond")] for n in drafts]
    assert beyond == [right - 1, 0]
    assert chosen_count(drafts, hints, matcher) == right


def test_without_hints_the_likeliest_is_taken(matcher: Matcher) -> None:
    assert chosen_count({1: draft(0.4, "a"), 2: draft(0.6, "a", "b")}, (), matcher) == 2


def test_hints_speak_for_two_steps_where_two_rows_serve_them_more_than_where_one_does(
    matcher: Matcher,
) -> None:
    hints = matcher.hints(
        draft(1.0, "bake wheat bread with yeast", "repair the puncture of a bicycle").steps, 4
    )
    weights = np.array([fitted()["feedback"][name] for name in FEEDBACK_FEATURES])

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
