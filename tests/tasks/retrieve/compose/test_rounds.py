"""Rounds of drafts, and the ranking of rows for their steps: when they end, what comes first, how sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tasks.retrieve.compose.drafts import Draft, DraftStep
from tasks.retrieve.compose.ranking import (
    RANKING_FEATURES,
    Matcher,
    StepRanker,
    StepRanking,
    confidence,
    fitted,
    name_terms,
    proper_nouns,
)
from tasks.retrieve.compose.rounds import FEEDBACK_FEATURES, chosen_count, decompose, draft_features, jaccard
from tasks.retrieve.routing.search import RowFacts, Searcher
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


def test_rounds_end_where_hints_or_the_draft_stay_or_it_is_empty_or_comes_again(matcher: Matcher) -> None:
    # Hints that agree end the rounds.
    written = Written(["bake bread"], ["bake some bread"], ["keep bees"])
    found = decompose("bread", written, matcher, rounds=5, hints=3)
    assert (len(written.asked), found.converged) == (2, True)
    assert found.draft.steps[0].text == "bake some bread"
    # A draft that stays ends the rounds.
    written = Written(["bake bread"])
    found = decompose("bread", written, matcher, rounds=5)
    assert (len(written.asked), len(found.rounds), found.converged) == (2, 2, True)
    assert found.rounds[1].jaccard == 1
    # An empty draft is not taken.
    found = decompose("bread", Written(["bake bread"], []), matcher, rounds=3)
    assert [step.text for step in found.draft.steps] == ["bake bread"]
    # A circle ends.
    written = Written(["bake bread"], ["keep bees"], ["bake bread"], ["keep bees"])
    found = decompose("bread or bees", written, matcher, rounds=9, hints=1)
    assert len(written.asked) == 3
    assert [step.text for step in found.draft.steps] == ["keep bees"]
    # Jaccard is the share of the union.
    assert (jaccard({1, 2}, {2, 3}), jaccard(set(), set()), jaccard({1}, set())) == (1 / 3, 1.0, 0.0)


def draft(certainty: float, *texts: str) -> Draft:
    return Draft(tuple(DraftStep(text, ((k, k + 1),)) for k, text in enumerate(texts)), (), certainty)


def test_features_tell_how_many_rows_serve_and_a_far_likelier_draft_is_taken_all_the_same(
    matcher: Matcher,
) -> None:
    # Features tell steps that one row serves from those that two serve.
    hints = matcher.hints(draft(1.0, "bake wheat bread", "repair the puncture of a bicycle").steps, 4)
    apart = draft_features(draft(0.5, "bake wheat bread", "repair the puncture of a bicycle"), hints, matcher)
    same = draft_features(draft(0.5, "bake wheat bread", "bread in the oven"), hints, matcher)
    assert apart[FEEDBACK_FEATURES.index("same")] == 0
    assert same[FEEDBACK_FEATURES.index("same")] == 1
    assert apart[FEEDBACK_FEATURES.index("likely")] == pytest.approx(np.log(0.5))
    # A draft that is far more likely is taken whatever the hints.
    hints = matcher.hints(draft(1.0, "bake wheat bread").steps, 3)
    drafts = {1: draft(0.97, "bake wheat bread"), 2: draft(0.03, "bake wheat", "bread")}
    assert chosen_count(drafts, hints, matcher) == 1
    # Without hints the likeliest is taken.
    assert chosen_count({1: draft(0.4, "a"), 2: draft(0.6, "a", "b")}, (), matcher) == 2


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


TASK = "There is a wheat loaf to make. Bake it, and repair the bicycle chain."


STEPS = [DraftStep("Bake it", ((31, 38),)), DraftStep("repair the bicycle chain", ((44, 68),))]


@pytest.fixture(scope="module")
def searcher(served_bakery: SkillRoot) -> Searcher:
    with served_bakery.ask().version() as now:
        return now.searcher()


def first(searcher: Searcher, ranking: StepRanking) -> str:
    return searcher.ids(ranking.rows[:1])[0]


def test_rows_are_ranked_by_the_step_in_its_task_and_only_those_that_may_be_found(searcher: Searcher) -> None:
    # Rows are ranked by the step in its task.
    bread, tea = StepRanker(Matcher(searcher)).rank(TASK, STEPS)
    assert (first(searcher, bread), first(searcher, tea)) == ("local/market/bread", "local/market/bike")
    assert list(bread.scores) == sorted(bread.scores, reverse=True)
    assert bread.shares().sum() == pytest.approx(1)
    assert bread.features.shape == (len(bread.rows), len(RANKING_FEATURES))
    # Rows that may not be found are in no ranking.
    allowed = np.ones(searcher.router.rows, dtype=bool)
    allowed[searcher.places()["local/market/bread"]] = False
    nothing = np.zeros_like(allowed)
    bread, _ = StepRanker(Matcher(searcher, allowed=allowed)).rank(TASK, STEPS)
    empty, _ = StepRanker(Matcher(searcher, allowed=nothing)).rank(TASK, STEPS)
    assert "local/market/bread" not in searcher.ids(bread.rows)
    assert (empty.rows, confidence(empty)) == ((), 0.0)


def test_names_are_told_by_their_own_words_alone() -> None:
    assert name_terms(RowFacts("ann/loaf-mcp-server", "Loaf MCP Server", None, 5)) == name_terms(
        RowFacts("bob/loaf", "loaf", None, 5)
    )


def ranked(scores: list[float], fit: float) -> StepRanking:
    features = np.full((len(scores), len(RANKING_FEATURES)), fit)
    return StepRanking(tuple(range(len(scores))), np.array(scores), features, np.full(len(scores), 0.5))


def test_one_is_surer_of_a_row_that_fits_better_and_stands_apart() -> None:
    alike, apart = ranked([2.0, 1.9, 1.8], 1.0), ranked([6.0, 1.9, 1.8], 1.0)
    assert 0 < confidence(alike) < confidence(apart) < 1
    assert confidence(replace(apart, cosines=-apart.cosines)) < confidence(apart)
    assert confidence(ranked([2.0, 1.9], 0.1)) < confidence(ranked([2.0, 1.9], 3.0))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Bread from the Oven, then the bicycle Chain.", {"oven", "chain"}),
        ("Oven first. Chain last.", set()),  # a capital that begins a sentence tells nothing
        ("ask MyOven Chain about it, and MyOven Chain again", {"myoven chain"}),  # one name, told twice
        ("oven, chain", set()),
        ("For the club's Oven: Monday's Chain’s links", {"oven", "chain"}),
        ("", set()),
    ],
)
def test_services_are_proper_nouns_that_names_of_rows_have(text: str, named: set[str]) -> None:
    rows = [RowFacts("a/oven-mcp", "MyOven", None, 0), RowFacts("b/chain", "chain", None, 0)]
    assert set(proper_nouns(text, frozenset().union(*map(name_terms, rows)))) == named
