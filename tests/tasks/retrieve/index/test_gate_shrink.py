from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from storage.errors import GateRefused
from tasks.retrieve.index.gate import check_shrink, require_passed
from tests.support.hand_written import SKILLS
from tests.support.skill_root import SkillRoot

Make = Callable[[dict[str, str]], SkillRoot]


@pytest.fixture
def published(skill_root: Make) -> SkillRoot:
    root = skill_root(SKILLS)
    root.publish()
    return root


def test_a_version_that_lost_a_skill_of_four_is_refused_with_the_share(published: SkillRoot) -> None:
    published.remove("bees")
    published.crawl()
    published.parse()
    built = published.build()

    checks = {c.check: c for c in check_shrink(published.root, built, max_shrink=0.05, few=0)}

    assert checks["skills.shrink"].value == 0.25
    with pytest.raises(GateRefused, match=r"skills\.shrink is 0\.25, may be at most 0\.05"):
        require_passed([asdict(check) for check in checks.values()])


def test_losing_few_rows_is_no_shrink_whatever_their_share(published: SkillRoot) -> None:
    built = replace(published.build(), skills_rows=3)

    checks = check_shrink(published.root, built, max_shrink=0.05, few=1)

    assert all(check.passed for check in checks)


def test_a_loss_up_to_the_share_passes_and_one_more_row_does_not(published: SkillRoot) -> None:
    built = published.build()
    lost = {n: replace(built, skills_rows=4 - n) for n in (1, 2)}

    passed = {n: check_shrink(published.root, lost[n], max_shrink=0.25, few=0)[0].passed for n in lost}

    assert passed == {1: True, 2: False}


def test_more_rows_than_before_pass(published: SkillRoot) -> None:
    built = replace(published.build(), skills_rows=40, nodes_rows=4000)

    assert all(check.passed for check in check_shrink(published.root, built, max_shrink=0, few=0))


def test_lost_nodes_are_told_apart_from_lost_skills(published: SkillRoot) -> None:
    built = replace(published.build(), nodes_rows=1)

    passed = {c.check: c.passed for c in check_shrink(published.root, built, max_shrink=0.05, few=0)}

    assert passed == {"skills.shrink": True, "nodes.shrink": False}


def test_a_version_without_nodes_is_compared_by_its_skills_alone(published: SkillRoot) -> None:
    built = replace(published.build(), nodes=None, nodes_rows=0)

    assert [c.check for c in check_shrink(published.root, built, max_shrink=0, few=0)] == ["skills.shrink"]


def test_the_first_version_has_nothing_to_shrink_from(skill_root: Make) -> None:
    root = skill_root(SKILLS)
    root.crawl()
    root.parse()

    assert check_shrink(root.root, root.build(), max_shrink=0, few=0) == []
