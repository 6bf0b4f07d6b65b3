"""Roots that are filled once a test session: one skill has left its text all over, or runs were learned."""

from __future__ import annotations

import pytest

from tasks.retrieve.served_index import ServedIndex
from tests.support.induce.learning import learned_root
from tests.support.roots.forgetting import fill
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, Make, SkillRoot


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """Tests copy it before they change it."""
    root = SkillRoot.below(tmp_path_factory.mktemp("filled"), minilm_export, {})
    fill(root)
    return root


@pytest.fixture(scope="session")
def learned_from(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """A root that serves skills of a folder and what runs taught; tests copy it."""
    folder = tmp_path_factory.mktemp("learned")
    return learned_root(SkillRoot.below(folder, minilm_export, SKILLS), folder)


@pytest.fixture(scope="module")
def index(served_bakery: SkillRoot) -> ServedIndex:
    """The served index of hand-written skills, which tests only ask."""
    return served_bakery.ask()


@pytest.fixture
def root(skill_root: Make) -> SkillRoot:
    """A root that serves the hand-written skills, for one test to change."""
    made = skill_root(SKILLS)
    made.publish()
    return made
