"""Rounds of drafts: they end when hints agree, when nothing changes, in a circle, and at an empty draft."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.rounds import decompose, jaccard
from tasks.retrieve.compose.decompose.steps import DraftStep
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
        router = now.searcher().router
    return Matcher(router)


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
