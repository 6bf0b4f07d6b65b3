"""Roots that are filled once a test session: one skill has left its text all over, or runs were learned."""

from __future__ import annotations

import pytest

from tests.support.induce.learning import learned_root
from tests.support.roots.forgetting import fill
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import Export, SkillRoot


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
