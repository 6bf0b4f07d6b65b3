"""Ranking and confidence: what fits a step in its task comes first, and how sure of it one may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.retrieve.compose.drafts import DraftStep
from tasks.retrieve.compose.ranking import (
    RANKING_FEATURES,
    Matcher,
    StepRanker,
    StepRanking,
    confidence,
    name_terms,
    proper_nouns,
)
from tasks.retrieve.routing.search import RowFacts, Searcher
from tests.support.roots.skill_root import SkillRoot

TASK = "There is a wheat loaf to make. Bake it, and repair the bicycle chain."
STEPS = [DraftStep("Bake it", ((31, 38),)), DraftStep("repair the bicycle chain", ((44, 68),))]


@pytest.fixture(scope="module")
def searcher(served_bakery: SkillRoot) -> Searcher:
    with served_bakery.ask().version() as now:
        return now.searcher()


def first(searcher: Searcher, ranking: StepRanking) -> str:
    return searcher.ids(ranking.rows[:1])[0]


def test_rows_are_ranked_by_the_step_in_its_task(searcher: Searcher) -> None:
    bread, tea = StepRanker(Matcher(searcher)).rank(TASK, STEPS)
    assert (first(searcher, bread), first(searcher, tea)) == ("local/market/bread", "local/market/bike")
    assert list(bread.scores) == sorted(bread.scores, reverse=True)
    assert bread.shares().sum() == pytest.approx(1)
    assert bread.features.shape == (len(bread.rows), len(RANKING_FEATURES))


def test_rows_that_may_not_be_found_are_in_no_ranking(searcher: Searcher) -> None:
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
