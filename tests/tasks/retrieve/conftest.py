"""A root that one skill has left its text all over, filled once a test session."""

from __future__ import annotations

import pytest

from tests.support.roots.forgetting import fill
from tests.support.roots.skill_root import Export, SkillRoot


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    """Tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("filled")
    root = SkillRoot(folder / "market", folder / "root", minilm_export.folder)
    fill(root)
    return root
